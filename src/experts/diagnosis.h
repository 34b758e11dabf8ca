// Which routed expert's weights are damaged: for the message about logits that are not finite. Knows no
// family and no device: it reads the file.
#pragma once

#include <atomic>
#include <string>

#include "experts/store.h"

namespace weir {

/// "blk.3.ffn_down_exps.weight, expert 17": the first expert with a NaN or an infinity, in the order of
/// layers, experts and their parts; empty where there is none, or once `cancel` (or null) is set. Reads every
/// expert through a buffer of some 100 KiB, page cache dropped behind, with progress on a terminal. Throws
/// Error with path and offset.
std::string first_not_finite_expert(const ExpertStore& store, const std::atomic<bool>* cancel);

}  // namespace weir
