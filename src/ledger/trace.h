// The last rounds as a Chrome trace (JSON) for Perfetto: a track of rounds, one per kind of lane for the
// roles, and as many as were ever in flight at once for expert reads. Needs LedgerOptions::trace. Must not
// touch the account.
#pragma once

#include <string>

#include "ledger/ledger.h"

namespace weir {

/// Spans that begin before the oldest round in the ring are left out. Times in microseconds from the first
/// event.
std::string trace_json(const Ledger& ledger);

/// Writes it so that `path` holds the old file or the whole new one. Throws Error (failure) that names the
/// path.
void write_trace(const Ledger& ledger, const std::string& path);

}  // namespace weir
