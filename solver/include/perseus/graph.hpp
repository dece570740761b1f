// Directed acyclic graphs in compressed rows: what every pass over instructions needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/types.hpp"

namespace perseus {

// Successors and predecessors of every instruction, and one topological order.
struct Graph {
  std::vector<std::int32_t> successor_begin, successors;      // (n + 1), (num_edges)
  std::vector<std::int32_t> predecessor_begin, predecessors;  // (n + 1), (num_edges)
  std::vector<std::int32_t> order;                            // (n)

  // Throws std::invalid_argument if an edge leaves [0, num_instructions) or the edges close a cycle.
  Graph(std::int32_t num_instructions, std::span<const std::int32_t> edge_from, std::span<const std::int32_t> edge_to);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(order.size()); }
  [[nodiscard]] std::span<const std::int32_t> successors_of(std::int32_t i) const {
    return std::span(successors).subspan(successor_begin[i], successor_begin[i + 1] - successor_begin[i]);
  }
  [[nodiscard]] std::span<const std::int32_t> predecessors_of(std::int32_t i) const {
    return std::span(predecessors).subspan(predecessor_begin[i], predecessor_begin[i + 1] - predecessor_begin[i]);
  }
};

// Latest end of each instruction that still lets the last one end at time_ps, for the given durations.
std::vector<TimePs> latest_ends(const Graph& graph, std::span<const TimePs> duration_ps, TimePs time_ps);

// Earliest end of each instruction for the given durations; the iteration time is the largest.
std::vector<TimePs> earliest_ends(const Graph& graph, std::span<const TimePs> duration_ps);

}  // namespace perseus
