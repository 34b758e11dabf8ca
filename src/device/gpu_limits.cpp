// Which models the CUDA device takes, in words.
#include "device/gpu_limits.h"

#include <fmt/format.h>

#include "device/device.h"

namespace weir {

std::string cuda_refusal(const ModelShape& s) {
  constexpr const char* instead = "use --device cpu";
  if (s.head_dim > cuda::max_head_dim || s.head_dim % cuda::head_dim_multiple != 0)
    return fmt::format("attention heads of {} values: a GPU takes multiples of {} up to {}; {}", s.head_dim,
                       cuda::head_dim_multiple, cuda::max_head_dim, instead);
  if (s.experts > cuda::most_experts)
    return fmt::format("{} experts in a layer: a GPU takes up to {}; {}", s.experts, cuda::most_experts,
                       instead);
  if (s.top_k > cuda::most_selected)
    return fmt::format("{} experts used for a token: a GPU takes up to {}; {}", s.top_k, cuda::most_selected,
                       instead);
  for (const auto& e : s.expert_formats)
    if (e.gate != e.up)
      return fmt::format("layer {} has experts' gate in {} and up in {}: a GPU takes one format for both; {}",
                         e.layer, type_info(e.gate).name, type_info(e.up).name, instead);
  return {};
}

}  // namespace weir
