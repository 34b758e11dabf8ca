// The sizes behind small_shape.h.
#include "device/cuda/small_shape.h"

#include <algorithm>

#include "base/error.h"

namespace weir::cuda {
namespace {

constexpr int shared_limit = 220 * 1024;
constexpr int barrier_bytes = 512;

int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/// The next stride at which rows 0..7 (or 0..3, for lanes that read eight bytes) start in different banks.
int spread(int bytes, int step) {
  const int steps = (bytes + step - 1) / step;
  return (steps | 1) * step;
}

struct FormatShape {
  int super_bytes = 0;
  int terms = 0;       ///< that a super-block adds to the float chain
  int bank_step = 32;  ///< bytes that the lanes of one row read at once
  bool per256 = false, minima = false;
};

FormatShape format_shape(Type type) {
  const TypeInfo& info = type_info(type);
  FormatShape f;
  f.super_bytes = info.block_bytes * (super_values / info.block_elements);
  f.per256 = info.act == ActFormat::per256;
  f.minima = type == Type::Q4_K;
  f.terms = f.per256 ? (f.minima ? 2 : 1) : 8;
  f.bank_step = type == Type::Q6_K ? 16 : 32;
  return f;
}

/// Everything but the choice of width, tiles and buffers.
SmallShape lay_out(const SmallNeeds& needs, const FormatShape& f, SmallShape s) {
  s.parts = (s.supers + s.width - 1) / s.width;
  // A row's bytes lie anywhere in their enclosing 16-byte span.
  s.stride = spread(round_up(s.width * f.super_bytes + 14, 16), f.bank_step);
  s.stage_bytes = s.tiles * tile_rows * s.stride;
  s.slots = needs.one_row || s.parts == 1 ? 1 : 2;
  const int held = needs.one_row ? s.supers : s.width;
  s.rows = needs.one_row ? needs.rows : round_up(needs.rows, 8);
  s.q_stride = needs.one_row ? held * super_values : spread(held * super_values, f.bank_step);
  s.sums_stride = held * 16 + (needs.one_row ? 0 : 16);
  s.scale_stride = held * (f.per256 ? 4 : 32);
  const int units = s.tiles * s.width;
  const int warps = most_warps(needs.one_row);
  s.threads = 32 * std::min(warps, units <= warps ? units : (units + 1) / 2);

  int at = barrier_bytes;
  s.stage_at = at, at += s.buffers * s.stage_bytes;
  s.q_at = at;
  s.sums_at = s.q_at + s.rows * s.q_stride;
  s.scale_at = round_up(s.sums_at + (f.minima ? s.rows * s.sums_stride : 0), 16);
  s.slot_bytes = round_up(s.scale_at + s.rows * s.scale_stride, 16) - s.q_at;
  at += s.slots * s.slot_bytes;
  s.terms_at = at;
  s.terms_bytes = units * f.terms * (needs.one_row ? tile_rows * 8 : s.rows * exchange_stride * 4);
  at += (needs.one_row && s.parts * needs.block_stages > 1 ? 2 : 1) * s.terms_bytes;
  s.factors_at = at, at += needs.one_row ? 0 : units * f.terms * tile_rows * 4;
  s.state_at = at, at += s.parts > 1 ? s.tiles * tile_rows * (needs.one_row ? 1 : s.rows) * 8 : 0;
  s.extra_at = at, at += round_up(needs.extra_bytes, 16);
  s.shared_bytes = at;
  return s;
}

/// With few enough tiles for the soft limit, and parts narrow enough for the hard one where there are.
SmallShape choose_shape(const SmallNeeds& needs, const FormatShape& f) {
  SmallShape s;
  s.in = static_cast<int>(needs.in);
  s.supers = (s.in + super_values - 1) / super_values;
  s.row_bytes = static_cast<int>(type_info(needs.type).bytes(static_cast<uint64_t>(needs.in)));
  const int widest = needs.one_row || f.per256 ? 16 : 4;
  s.width = s.supers <= widest ? s.supers : std::min(widest, segment_supers);
  s.tiles = std::max(needs.tiles, needs.tile_multiple);
  const auto stages = [&] { return needs.block_stages * ((s.supers + s.width - 1) / s.width); };
  const auto fit = [&] {
    s.buffers = std::min(stages(), std::max(needs.buffers, stages() > 1 ? 2 : 1));
    s = lay_out(needs, f, s);
    return s.shared_bytes;
  };
  while (fit() > needs.soft_limit && s.tiles > needs.tile_multiple) s.tiles -= needs.tile_multiple;
  while (s.shared_bytes > shared_limit && s.width > 1) s.width = (s.width + 1) / 2, fit();
  return s;
}

}  // namespace

bool small_fits(const SmallNeeds& needs) {
  return choose_shape(needs, format_shape(needs.type)).shared_bytes <= shared_limit;
}

SmallShape plan_small(const SmallNeeds& needs) {
  const FormatShape f = format_shape(needs.type);
  SmallShape s = choose_shape(needs, f);
  const int stages = needs.block_stages * s.parts;
  WEIR_CHECK(s.shared_bytes <= shared_limit, "{} bytes of shared memory for {} values", s.shared_bytes, s.in);
  // What is left of the limit lets more stages be in flight.
  while (s.buffers < std::min(stages, 4) &&
         lay_out(needs, f, s).shared_bytes + s.stage_bytes <= needs.soft_limit) {
    ++s.buffers;
    s = lay_out(needs, f, s);
  }
  return s;
}

}  // namespace weir::cuda
