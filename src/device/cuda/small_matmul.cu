// small_matmul(): how its tiles are spread over the multiprocessors.
#include <algorithm>

#include "device/cuda/small_acts.cuh"
#include "device/cuda/small_matmul.h"
#include "quant/codecs.h"

namespace weir::cuda {
namespace {

/// Shared memory of a block where all its tiles are in it at once, and of one that streams them.
constexpr int resident_limit = 100 * 1024, streaming_limit = 72 * 1024;
constexpr int most_resident_tiles = 4;

SmallMatmulTask numbered(const SmallMatmul& args) {
  SmallMatmulTask task;
  task.targets = args.targets;
  for (int k = 0; k < args.targets; ++k) {
    const SmallTarget& from = args.target[k];
    task.target[k] = {static_cast<const uint8_t*>(from.weight), from.out, static_cast<int>(from.out_rows),
                      task.tiles, from.add ? 1 : 0};
    task.tiles += static_cast<int>((from.out_rows + tile_rows - 1) / tile_rows);
  }
  task.x = args.x, task.norm = args.norm, task.eps = args.eps, task.acts = args.acts, task.rows = args.rows;
  return task;
}

/// Tiles for each multiprocessor. Few: one block on each with its tiles side by side, so that every byte is
/// in flight before the wait and the activations are made once. Many: blocks that stream one tile after
/// another.
int share_of(const Stream& s, const SmallMatmulTask& task) {
  return (task.tiles + s.multiprocessors - 1) / s.multiprocessors;
}

SmallNeeds matmul_needs(const SmallMatmul& args, int share) {
  SmallNeeds needs;
  needs.type = args.type, needs.in = args.in, needs.one_row = args.rows == 1, needs.rows = args.rows;
  needs.extra_bytes = needs.one_row && args.norm ? norm_bytes(static_cast<int>(args.in)) : 0;
  const bool resident = share <= most_resident_tiles;
  needs.tiles = resident ? share : 1;
  needs.block_stages = resident ? 1 : share;
  needs.buffers = resident ? 1 : 2;
  needs.soft_limit = resident ? resident_limit : streaming_limit;
  return needs;
}

}  // namespace

bool small_matmul_fits(const Stream& s, const SmallMatmul& args) {
  return small_fits(matmul_needs(args, share_of(s, numbered(args))));
}

void small_matmul(Stream& s, const SmallMatmul& args) {
  WEIR_CHECK(args.rows >= 1 && args.rows <= small_rows && args.targets >= 1 && args.targets <= 3,
             "small_matmul of {} rows, {} targets", args.rows, args.targets);
  SmallMatmulTask task = numbered(args);
  const int share = share_of(s, task);
  const bool resident = share <= most_resident_tiles;
  task.shape = plan_small(matmul_needs(args, share));
  task.groups = (task.tiles + task.shape.tiles - 1) / task.shape.tiles;
  int blocks = task.groups;
  if (!resident) {
    constexpr int multiprocessor_bytes = 228 * 1024, multiprocessor_threads = 1024;
    const int at_once = std::clamp(std::min(multiprocessor_bytes / (task.shape.shared_bytes + 1024),
                                            multiprocessor_threads / task.shape.threads),
                                   1, 8);
    blocks = std::min(blocks, at_once * s.multiprocessors);
  }
  const auto run = [&]<typename Codec>() {
    if constexpr (Codec::act != ActFormat::none)
      if (Codec::type == args.type) launch_small_matmul<Codec>(s, task, blocks);
  };
  quant::Codecs::each(run);
}

}  // namespace weir::cuda
