// Which weights the one-row kernels multiply with activations that an earlier kernel quantised.
#include "device/cuda/kernels.h"

namespace weir::cuda {

bool one_row_takes_acts(Type, int64_t) { return false; }

}  // namespace weir::cuda
