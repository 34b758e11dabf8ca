// What a trace says about routing itself, whatever the slots: how soon experts are used again, and how
// unevenly. Pure functions of a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/replay.h"

namespace weir::lab {

/// Distances between a use of an expert and the use before, in tokens of its layer; 1: the next token. Tokens
/// of all lanes and phases count, in the order of their rows.
struct Distances {
  uint64_t first = 0;           ///< uses that had none before
  std::vector<uint64_t> count;  ///< by distance, [0] stays 0
  void add(uint64_t distance);
  Distances& operator+=(const Distances& other);
  uint64_t again() const;                                   ///< uses that had one before
  double share_between(uint64_t low, uint64_t high) const;  ///< of again(), both ends included
  uint64_t quantile(double q) const;  ///< the smallest distance that covers q of again(); 0: none
};

struct LayerRouting {
  int layer = 0, experts = 0;
  uint64_t uses = 0;
  int used = 0;           ///< experts that were used at all
  double top_1 = 0;       ///< share of uses of the most used expert
  double top_8 = 0;       ///< of the 8 most used; even routing would give 8 / experts
  double least = 0;       ///< of the least used one
  double next_token = 0;  ///< share of uses that repeat one of the token before
  Distances distances;
};

struct RoutingProfile {
  std::vector<LayerRouting> layers;
  Distances distances;  ///< of all layers
};
RoutingProfile routing_profile(const RouteTrace& trace, PhaseChoice choice);

}  // namespace weir::lab
