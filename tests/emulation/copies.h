// Asynchronous copies into shared memory and the barriers they complete on. A copy's destination is NaNs from
// its start until someone waits for it, so that both a reader that is early and one that was late to leave
// see it. State is a block's; block.cpp resets it.
#pragma once

namespace weir::emulation {

/// At the start of a block: no barriers, no copies.
void reset_copies();
/// At the end of a block: a message if a bulk copy is still under way, or null.
const char* unfinished_copies();

}  // namespace weir::emulation
