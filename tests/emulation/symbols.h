// Names of the program's own functions and where its kernels' static shared memory lies, from the symbol
// table of the running file. Static shared memory is the thread_local statics of functions in weir::cuda.
#pragma once

#include <string>

namespace weir::emulation {

/// "weir::cuda::(anonymous namespace)::embed_kernel<...>", or the address where there is no symbol.
std::string function_name(const void* address);
/// The function and the offset in it: for `addr2line -e PROGRAM`.
std::string code_location(const void* address);
/// Fills this thread's copy of all static shared memory with NaNs.
void poison_static_shared();

}  // namespace weir::emulation
