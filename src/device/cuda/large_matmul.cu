// Which format's large tiles a call takes.
#include "device/cuda/kernels.h"
#include "quant/codecs.h"

namespace weir::cuda {
namespace large {

// Instantiated in the formats' own files (large_matmul.cuh).
template <typename Codec>
void launch_matmul(Stream& s, const LargeMatmul& args);
template <typename Codec>
void launch_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                    int top_k, float* act);
template <typename Codec>
void launch_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                 int top_k, float* parts);

namespace {

/// Calls f.template operator()<Codec>() for the codec of `type`.
template <typename F>
void with_codec(Type type, const char* operation, F&& f) {
  bool found = false;
  quant::Codecs::each([&]<typename Codec>() {
    if constexpr (Codec::act != ActFormat::none) {
      if (Codec::type == type) f.template operator()<Codec>(), found = true;
    }
  });
  WEIR_CHECK(found, "{} of {}", operation, type_name(static_cast<uint32_t>(type)));
}

}  // namespace
}  // namespace large

void large_matmul(Stream& s, const LargeMatmul& args) {
  if (args.rows == 0) return;
  large::with_codec(args.type, "large_matmul",
                    [&]<typename Codec>() { large::launch_matmul<Codec>(s, args); });
}

void large_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                   int top_k, float* act) {
  if (rows == 0) return;
  WEIR_CHECK(bank.gate.type == bank.up.type, "large_gate_up of two types");
  large::with_codec(bank.gate.type, "large_gate_up", [&]<typename Codec>() {
    large::launch_gate_up<Codec>(s, bank, groups, acts, rows, top_k, act);
  });
}

void large_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                int top_k, float* parts) {
  if (rows == 0) return;
  large::with_codec(bank.down.type, "large_down", [&]<typename Codec>() {
    large::launch_down<Codec>(s, bank, groups, acts, rows, top_k, parts);
  });
}

}  // namespace weir::cuda
