// The block formats that weir computes with: one header and one row each. Everything that is done per format
// (type_info, the scalar kernels, the conformance tests) walks this list.
#pragma once

#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/f32.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace weir::quant {

template <typename... Codec>
struct CodecList {
  /// Calls f.template operator()<Codec>() for each, in order.
  template <typename F>
  static constexpr void each(F&& f) {
    (f.template operator()<Codec>(), ...);
  }
};

using Codecs = CodecList<F32,   //
                         F16,   //
                         BF16,  //
                         Q8_0,  //
                         Q5_0,  //
                         Q4_K,  //
                         Q6_K>;

}  // namespace weir::quant
