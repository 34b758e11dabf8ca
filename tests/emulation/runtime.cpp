// The runtime API over the emulator: streams do everything at once, or record while they capture; a graph is
// the list of what was recorded. Checks what CUDA would refuse: launch shapes, shared memory that was not
// allowed, copies outside allocations, waiting on a stream that captures.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "emulation/block.h"
#include "emulation/include/cuda_runtime_api.h"
#include "emulation/memory.h"
#include "emulation/symbols.h"

using Work = std::function<cudaError_t()>;

struct EmulatedGraph {
  std::vector<Work> work;
};
struct EmulatedGraphExec {
  std::vector<Work> work;
};
struct EmulatedStream {
  EmulatedGraph* capture = nullptr;
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point at{};
};

namespace weir::emulation {
namespace {

constexpr int max_dynamic_shared = 232448, default_dynamic_shared = 48 << 10;

struct Runtime {
  cudaError_t last = cudaSuccess;
  std::string failure;
  std::map<const void*, int> allowed_shared;
  std::map<const void*, size_t> host;  ///< allocations and registrations
  int capturing = 0;
  uint64_t complete = 0;  ///< the last launch that is complete when the next one starts
};
Runtime& runtime() {
  static Runtime r;
  return r;
}

Counts& mutable_counts() {
  static Counts c;
  return c;
}

cudaError_t result(cudaError_t error, const std::string& text = {}) {
  if (error != cudaSuccess) runtime().last = error, runtime().failure = text;
  return error;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (!stream || !stream->capture) return work();
  stream->capture->work.push_back(std::move(work));
  return cudaSuccess;
}

/// Everything that was launched is complete: a wait, or work that is no programmatic launch.
void complete_all() { runtime().complete = memory::current_launch(); }

/// Runs a kernel, and keeps what the one after it may rely on before its own wait.
cudaError_t run(const std::string& name, dim3 grid, dim3 block, size_t shared, bool programmatic,
                const std::function<void()>& body) {
  note(&Counts::launches);
  if (!programmatic) complete_all();
  const uint64_t before = memory::current_launch();
  memory::begin_launch(runtime().complete);
  const std::string failed = run_grid(name, grid, block, shared, body);
  if (next_starts() == NextStarts::after_wait) runtime().complete = before;
  if (next_starts() == NextStarts::after_end) complete_all();
  return failed.empty() ? cudaSuccess : result(cudaErrorLaunchFailure, failed);
}

cudaError_t check_copy(const void* p, size_t bytes, const char* what) {
  if (memory::is_device(p) ? memory::contains(p, bytes) : !memory::describe(p).ends_with("bytes"))
    return cudaSuccess;
  return result(cudaErrorInvalidValue, fmt::format("{} of {} bytes at {}", what, bytes, memory::describe(p)));
}

bool is_device_kind(cudaMemcpyKind kind, bool destination) {
  return kind == cudaMemcpyDeviceToDevice ||
         kind == (destination ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  if (kind != cudaMemcpyDefault && (is_device_kind(kind, true) != memory::is_device(to) ||
                                    is_device_kind(kind, false) != memory::is_device(from)))
    return result(cudaErrorInvalidValue, "a copy whose kind is not where its memory is");
  for (const auto& [p, what] :
       {std::pair{from, "a copy's source"}, std::pair{const_cast<const void*>(to), "a copy's destination"}})
    if (const cudaError_t error = check_copy(p, bytes, what)) return error;
  complete_all();
  memory::open_for_host(to);
  memmove(to, from, bytes);
  memory::close_for_host(to);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (!memory::contains(to, bytes)) return result(cudaErrorInvalidValue, "memset of " + memory::describe(to));
  complete_all();
  memory::open_for_host(to);
  memset(to, value, bytes);
  memory::close_for_host(to);
  return cudaSuccess;
}

std::string refused_shape(const cudaLaunchConfig_t& c, const void* kernel) {
  const dim3 g = c.gridDim, b = c.blockDim;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    return fmt::format("a grid of ({}, {}, {})", g.x, g.y, g.z);
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.z > 64 || uint64_t{b.x} * b.y * b.z > 1024)
    return fmt::format("a block of ({}, {}, {})", b.x, b.y, b.z);
  const auto it = runtime().allowed_shared.find(kernel);
  const int allowed = it == runtime().allowed_shared.end() ? default_dynamic_shared : it->second;
  if (c.dynamicSmemBytes > static_cast<size_t>(allowed))
    return fmt::format("{} bytes of dynamic shared memory where {} are allowed", c.dynamicSmemBytes, allowed);
  return {};
}

}  // namespace

Options& options() {
  static Options o;
  return o;
}
const Counts& counts() { return mutable_counts(); }
void note(uint64_t Counts::*count) { ++(mutable_counts().*count); }
const std::string& last_failure() { return runtime().failure; }

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> body) {
  const std::string name = function_name(kernel);
  if (const std::string refused = refused_shape(config, kernel); !refused.empty())
    return result(cudaErrorInvalidConfiguration, name + ": " + refused);
  bool programmatic = false;
  for (unsigned i = 0; i < config.numAttrs; ++i)
    programmatic |= config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                    config.attrs[i].val.programmaticStreamSerializationAllowed;
  return enqueue(config.stream,
                 [=, grid = config.gridDim, block = config.blockDim, shared = config.dynamicSmemBytes] {
                   return run(name, grid, block, shared, programmatic, body);
                 });
}

}  // namespace weir::emulation

using namespace weir::emulation;

// --- errors

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess        ? "no error"
         : runtime().failure.empty() ? "no details"
                                     : runtime().failure.c_str();
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    default:
      return "an emulated error";
  }
}
cudaError_t cudaGetLastError() { return std::exchange(runtime().last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return runtime().last; }

// --- devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = options().devices;
  return *count ? cudaSuccess : result(cudaErrorNoDevice, "no emulated device");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device < 0 || device >= options().devices)
    return result(cudaErrorInvalidDevice, "no such emulated device");
  *p = {};
  strcpy(p->name, "emulated GPU");
  p->totalGlobalMem = options().memory_bytes;
  p->sharedMemPerBlock = default_dynamic_shared, p->sharedMemPerBlockOptin = max_dynamic_shared;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->major = 9, p->minor = 0, p->multiProcessorCount = options().multiprocessors, p->warpSize = 32;
  p->l2CacheSize = 50 << 20, p->maxThreadsPerBlock = 1024, p->canMapHostMemory = 1, p->unifiedAddressing = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device >= 0 && device < options().devices ? cudaSuccess
                                                   : result(cudaErrorInvalidDevice, "no such device");
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  return runtime().capturing ? result(cudaErrorStreamCaptureUnsupported, "a wait while a stream captures")
                             : cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }

// --- memory

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (runtime().capturing)
    return result(cudaErrorStreamCaptureUnsupported, "cudaMalloc while a stream captures");
  *data = memory::allocate(bytes);
  if (!*data) return result(cudaErrorMemoryAllocation, "out of memory");
  ++mutable_counts().allocations;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (!data) return cudaSuccess;
  if (runtime().capturing)
    return result(cudaErrorStreamCaptureUnsupported, "cudaFree while a stream captures");
  if (!memory::free(data)) return result(cudaErrorInvalidValue, "cudaFree of what cudaMalloc did not give");
  --mutable_counts().allocations;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  *data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + (bytes == 0) * 4096);
  if (!*data) return result(cudaErrorMemoryAllocation, "out of host memory");
  runtime().host[*data] = bytes;
  ++mutable_counts().allocations;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, 0); }
cudaError_t cudaFreeHost(void* data) {
  if (!data) return cudaSuccess;
  if (!runtime().host.erase(data)) return result(cudaErrorInvalidValue, "cudaFreeHost of unknown memory");
  free(data);
  --mutable_counts().allocations;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  runtime().host[data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  return runtime().host.erase(data) ? cudaSuccess
                                    : result(cudaErrorInvalidValue, "memory that is not registered");
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  auto it = runtime().host.upper_bound(host);
  if (it == runtime().host.begin() ||
      static_cast<const char*>(host) >= static_cast<const char*>((--it)->first) + it->second)
    return result(cudaErrorInvalidValue, "host memory that the device cannot reach");
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = options().memory_bytes, *free = *total - memory::allocated();
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return enqueue(stream, [=] { return copy(to, from, bytes, kind); });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return set(to, value, bytes); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { return set(to, value, bytes); });
}

// --- streams and events

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  ++mutable_counts().allocations;
  return *stream = new EmulatedStream, cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  --mutable_counts().allocations;
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!stream || !stream->capture) complete_all();
  return stream && stream->capture
             ? result(cudaErrorStreamCaptureUnsupported, "a wait for a stream that captures")
             : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user) {
  return enqueue(stream, [=] { return function(user), cudaSuccess; });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new EmulatedEvent, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return enqueue(stream, [=] { return event->at = std::chrono::steady_clock::now(), cudaSuccess; });
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

// --- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!stream || stream->capture)
    return result(cudaErrorInvalidValue, "capture of the null stream, or twice");
  stream->capture = new EmulatedGraph;
  ++runtime().capturing;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream || !stream->capture) return result(cudaErrorInvalidValue, "the stream does not capture");
  *graph = std::exchange(stream->capture, nullptr);
  --runtime().capturing;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream && stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  ++mutable_counts().allocations;
  return *exec = new EmulatedGraphExec{graph->work}, cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = graph->work.size(), cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  note(&Counts::graph_launches);
  complete_all();
  for (const Work& work : exec->work)
    if (const cudaError_t error = work()) return error;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  --mutable_counts().allocations;
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > max_dynamic_shared)
    return result(cudaErrorInvalidValue, fmt::format("{} bytes of dynamic shared memory", value));
  runtime().allowed_shared[kernel] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return *attributes = {}, cudaSuccess;
}
