#include "lab/ab/role_table.h"

namespace weir::lab::ab {

namespace {

template <typename Time>
RoleRow row_of(std::string role, std::span<const Pair> pairs, Time time) {
  RoleRow row;
  row.role = std::move(role);
  std::vector<double> differences;
  for (const auto& pair : pairs) {
    uint64_t a = 0, b = 0;
    for (const Observation* o : pair.a) a += time(*o);
    for (const Observation* o : pair.b) b += time(*o);
    row.a_ns += a, row.b_ns += b;
    differences.push_back((static_cast<double>(b) - static_cast<double>(a)) /
                          static_cast<double>(pair.a.size()));
  }
  row.difference_ns = static_cast<int64_t>(row.b_ns - row.a_ns);
  row.interval = median_interval(differences);
  return row;
}

}  // namespace

RoleTable role_table(const Experiment& experiment, std::span<const Pair> pairs) {
  RoleTable table;
  table.pairs = pairs.size();
  for (const auto& pair : pairs) table.runs += pair.a.size();
  const auto& roles = experiment.setting.roles;
  for (size_t i = 0; i < roles.size(); ++i) {
    auto row = row_of(roles[i], pairs, [i](const Observation& o) { return o.role_ns[i]; });
    if (row.a_ns + row.b_ns > 0) table.rows.push_back(std::move(row));
  }
  table.whole = row_of("whole", pairs, [](const Observation& o) { return o.metric_ns; });
  return table;
}

}  // namespace weir::lab::ab
