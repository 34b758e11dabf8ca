// The last rounds as a Chrome trace (JSON) for Perfetto: a track of rounds, one per kind of lane for the
// roles, and as many as were ever in flight at once for expert reads. Needs LedgerOptions::trace. Must not
// touch the account. It is written piece by piece: what that takes does not depend on the text's length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ledger/ledger.h"

namespace weir {

/// What writing takes besides the ledger: the order of the spans, and the text on its way.
inline constexpr uint64_t trace_index_bytes = sizeof(uint32_t);  ///< a span
inline constexpr uint64_t trace_write_bytes = 8 << 10;

/// `gpu` is the name of the GPU that computes ("cuda:0"), for the tracks' names; empty: the CPU does, on the
/// thread that also waits and schedules. Spans that begin before the oldest round in the ring are left out.
/// Times in microseconds from the first event. Hands the text to `sink` in pieces.
void write_trace(const Ledger& ledger, const std::string& gpu,
                 const std::function<void(std::string_view)>& sink);
/// The whole text: for tests.
std::string trace_json(const Ledger& ledger, const std::string& gpu = "");

/// Writes it so that `path` holds the old file or the whole new one. Throws Error (failure) that names the
/// path.
void write_trace(const Ledger& ledger, const std::string& gpu, const std::string& path);

}  // namespace weir
