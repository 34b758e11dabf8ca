// The routing of a run, recorded: a compact file from which hit rates can be computed for any slots and
// policy without running the model. Format in docs/route-trace.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experts/store.h"
#include "ledger/role.h"

namespace weir {

struct RouteTraceHeader {
  uint64_t fingerprint = 0;  ///< gguf::Model::fingerprint() of the model
  int layers = 0, top_k = 0;
  std::vector<int> experts;            ///< per layer
  std::vector<uint64_t> expert_bytes;  ///< per layer, of one expert
};

/// One call of a layer's experts: the ids of `rows` rows, top_k each, increasing.
struct RouteRecord {
  Phase phase = Phase::prefill;
  uint32_t round = 0;
  int layer = 0, rows = 0;
  std::vector<uint16_t> ids;
};

class RouteTraceWriter {
 public:
  /// Throws Error (input) where the file cannot be made. Writes to a temporary beside it; close() renames.
  RouteTraceWriter(const std::string& path, const RouteTraceHeader& header);
  /// What one takes at most for rounds of `rows` rows: for the plan.
  static uint64_t bytes(int layers, int rows, int top_k);
  ~RouteTraceWriter();
  void begin_round(Phase phase);
  void record(int layer, std::span<const int32_t> ids, int rows);
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct RouteTrace {
  RouteTraceHeader header;
  std::vector<RouteRecord> records;
  /// Throws Error (input) with file and offset for a damaged or truncated file.
  static RouteTrace read(const std::string& path);
  /// The same for a file's bytes, which `name` names in errors.
  static RouteTrace parse(std::vector<uint8_t> bytes, const std::string& name);
};

}  // namespace weir
