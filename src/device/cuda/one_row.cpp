// Which one-row matmuls read activations that an earlier kernel quantised: none so far.
#include "device/cuda/kernels.h"

namespace weir::cuda {

bool one_row_takes_acts(Type, int64_t) { return false; }

}  // namespace weir::cuda
