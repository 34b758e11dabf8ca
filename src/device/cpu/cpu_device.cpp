// Memory, scratch and the operations on rows: embed, norms, gates, sums and copies.
#include "device/cpu/cpu_device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace weir::cpu {
namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t huge_page_bytes = size_t{2} << 20;
/// Below this a mapping holds no whole huge page. Above it its end keeps small pages: what is mapped is what
/// was asked for.
constexpr size_t huge_from_bytes = huge_page_bytes;
/// Elementwise work is split in pieces of this many values: below it a barrier costs more than it saves.
constexpr int64_t element_grain = 4096;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

ScratchLayout plan_scratch(const ScratchNeeds& needs, int threads) {
  ScratchLayout layout;
  layout.needs = needs;
  const auto rows = static_cast<size_t>(needs.rows);
  layout.in = static_cast<int64_t>(round_up(static_cast<size_t>(std::max(needs.max_in, needs.hidden)), 256));
  layout.pairs = std::min<int64_t>(int64_t{needs.rows} * needs.top_k, expert_slice_pairs);
  const auto in = static_cast<size_t>(layout.in), pairs = static_cast<size_t>(layout.pairs);
  const size_t ff = round_up(static_cast<size_t>(needs.expert_ff), 256);
  size_t at = 0;
  const auto take = [&at](size_t bytes) {
    const size_t begin = at;
    at += round_up(bytes, 64);
    return begin;
  };
  layout.q32 = take(rows * in);
  layout.scale32 = take(rows * in / 32 * sizeof(float));
  layout.q256 = take(rows * in);
  layout.scale256 = take(rows * in / 256 * sizeof(float));
  layout.sums256 = take(rows * in / 32 * sizeof(int16_t));
  layout.logits = take(rows * static_cast<size_t>(needs.experts) * sizeof(float));
  layout.normed = take(rows * in * sizeof(float));
  layout.added = take(rows * static_cast<size_t>(needs.hidden) * sizeof(float));
  layout.attend_stride =
      round_up(static_cast<size_t>(attend_scratch_floats(needs.heads, needs.head_dim)) * sizeof(float), 64);
  layout.attend = take(layout.attend_stride * static_cast<size_t>(threads));
  layout.chosen_stride = round_up(static_cast<size_t>(needs.top_k) * sizeof(Selected), 64);
  layout.chosen = take(layout.chosen_stride * static_cast<size_t>(threads));
  layout.gate = take(pairs * ff * sizeof(float));
  layout.up = take(pairs * ff * sizeof(float));
  layout.q_ff = take(pairs * ff);
  layout.scale_ff = take(pairs * ff / 32 * sizeof(float));
  layout.sums_ff = take(pairs * ff / 32 * sizeof(int16_t));
  layout.pair_row = take(pairs * sizeof(int32_t));
  layout.row_list = take(rows * sizeof(int32_t));
  layout.row_seen = take(rows);
  layout.bytes = at;
  return layout;
}

CpuDevice::CpuDevice(int threads, const MatmulKernels& matmul, const FloatKernels& floats)
    : team_(threads), matmul_(matmul), float_(floats) {}

std::string CpuDevice::description() const {
  return fmt::format("cpu: {} thread{}, {}", team_.size(), team_.size() == 1 ? "" : "s", matmul_.isa);
}

Buffer CpuDevice::allocate(size_t bytes, const char* what) {
  if (bytes == 0) return {};
  // Anonymous mappings: zero pages until touched, so that only what is used counts as resident.
  const size_t kept = round_up(bytes, page_bytes);
  const bool huge = bytes >= huge_from_bytes;
  const size_t mapped = huge ? kept + huge_page_bytes : kept;
  void* base =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    throw failure("cpu: cannot allocate {} bytes for {}: {}", bytes, what, strerror(errno));
  if (!huge) return Buffer(this, base, bytes);
  auto* begin = static_cast<uint8_t*>(base);
  auto* data = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(base), huge_page_bytes));
  if (data > begin) munmap(begin, static_cast<size_t>(data - begin));
  munmap(data + kept, mapped - kept - static_cast<size_t>(data - begin));
  madvise(data, kept, MADV_HUGEPAGE);  // refused where the kernel has none: slower, not wrong
  return Buffer(this, data, bytes);
}

void CpuDevice::free(void* data, size_t bytes) noexcept { munmap(data, round_up(bytes, page_bytes)); }

void CpuDevice::upload(void* device_destination, const void* host_source, size_t bytes) {
  if (bytes != 0) memcpy(device_destination, host_source, bytes);
}

void CpuDevice::download(void* host_destination, const void* device_source, size_t bytes) {
  if (bytes != 0) memcpy(host_destination, device_source, bytes);
}

uint64_t CpuDevice::scratch_bytes(const ScratchNeeds& needs) const {
  return plan_scratch(needs, team_.size()).bytes;
}

void CpuDevice::reserve(const ScratchNeeds& needs) {
  const ScratchNeeds all = layout_.needs.covering(needs);
  layout_ = plan_scratch(all, team_.size());
  scratch_ = {};
  scratch_ = allocate(layout_.bytes, "scratch");
  slice_.reserve(static_cast<size_t>(layout_.pairs));
}

void CpuDevice::file_imbalance() {
  if (!ledger_) return;
  const ThreadTeam::Imbalance taken = team_.take_imbalance();
  ledger_->imbalance(taken.busy_ns, taken.barrier_ns, taken.tasks);
}

void CpuDevice::embed(const EmbedArgs& args) {
  const Matrix& table = args.table;
  const TypeInfo& info = type_info(table.type);
  WEIR_CHECK(info.decode, "embed from {}", info.name);
  const uint64_t row_bytes = info.bytes(static_cast<uint64_t>(table.in));
  declare_bytes(row_bytes * static_cast<uint64_t>(args.rows.count));
  team_.run(args.rows.count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t token = args.rows.token[r];
      WEIR_CHECK(token >= 0 && token < table.out, "token {} of {}", token, table.out);
      const auto* row = static_cast<const uint8_t*>(table.data) + static_cast<uint64_t>(token) * row_bytes;
      info.decode(row, args.out + r * table.in, table.in);
    }
  });
}

void CpuDevice::rms_norm(const NormArgs& args) {
  const int64_t n = args.n;
  team_.run(args.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      float_.rms_norm(args.x + r * n, args.weight, args.out + r * n, n, args.eps);
  });
}

void CpuDevice::combine(const CombineArgs& args) {
  constexpr int64_t tile = 512;
  const int64_t tiles = (args.hidden + tile - 1) / tile;
  team_.run(args.rows * tiles, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t / tiles, at = t % tiles * tile;
      const int64_t n = std::min(tile, args.hidden - at);
      float sum[tile] = {};
      for (int64_t j = 0; j < args.top_k; ++j) {
        const int64_t pair = row * args.top_k + j;
        float_.axpy(args.weights[pair], args.parts + pair * args.hidden + at, sum, n);
      }
      float_.add(args.h + row * args.hidden + at, sum, n);
    }
  });
}

/// What the engine's sampler reads and chooses where it is greedy, with the banned ids at -inf.
void CpuDevice::choose(const ChooseArgs& args) {
  constexpr float greatest = std::numeric_limits<float>::max(),
                  least = -std::numeric_limits<float>::infinity();
  const auto banned = std::span(args.banned, static_cast<size_t>(args.banned_count));
  const int64_t choosable = args.choosable > 0 ? args.choosable : args.n;
  team_.run(args.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = args.logits + r * args.n;
      Choice choice;
      float best = least;
      for (int64_t i = 0; i < args.n; ++i) {
        const auto id = static_cast<int32_t>(i);
        if (!(row[i] <= greatest) && choice.first_not_finite < 0) choice.first_not_finite = id;
        if (i >= choosable || (choice.token >= 0 && !(row[i] > best))) continue;
        const bool out = std::find(banned.begin(), banned.end(), id) != banned.end();
        if (choice.token >= 0 && out) continue;
        choice.token = id, best = out || std::isnan(row[i]) ? least : row[i];
      }
      args.choice[r] = choice;
    }
  });
}

void CpuDevice::gated(const GatedArgs& args) {
  WEIR_CHECK(args.activation == Activation::swiglu);
  team_.run(args.rows * args.n, element_grain, [&](int64_t begin, int64_t end, int) {
    float_.swiglu(args.gate + begin, args.up + begin, args.out + begin, end - begin);
  });
}

void CpuDevice::add(float* h, const float* y, int64_t n) {
  team_.run(n, 2 * element_grain,
            [&](int64_t begin, int64_t end, int) { float_.add(h + begin, y + begin, end - begin); });
}

void CpuDevice::gather_rows(const float* x, const int32_t* index, int count, int64_t n, float* out) {
  team_.run(count, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      memcpy(out + r * n, x + index[r] * n, static_cast<size_t>(n) * sizeof(float));
  });
}

}  // namespace weir::cpu

namespace weir {

std::unique_ptr<Device> make_cpu_device(int threads, Isa isa) {
  constexpr int most_threads = 1024;
  if (threads < 1 || threads > most_threads)
    throw input_error("threads: {} is not in 1..{}", threads, most_threads);
  const bool has_avx2 = cpu::processor_has_avx2(), has_avx512 = cpu::processor_has_vnni();
  if (isa == Isa::avx2 && !has_avx2)
    throw input_error("isa: this processor has no AVX2, FMA and F16C; use scalar");
  if (isa == Isa::avx512 && !has_avx512)
    throw input_error("isa: this processor has no AVX512-VNNI; use avx2 or scalar");
  if (isa == Isa::scalar || !has_avx2)
    return std::make_unique<cpu::CpuDevice>(threads, cpu::scalar_matmul_kernels(),
                                            cpu::scalar_float_kernels());
  const bool avx512 = has_avx512 && isa != Isa::avx2;
  return std::make_unique<cpu::CpuDevice>(
      threads, avx512 ? cpu::vnni_matmul_kernels() : cpu::avx2_matmul_kernels(), cpu::avx2_float_kernels());
}

}  // namespace weir
