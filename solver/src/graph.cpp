#include "perseus/graph.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace perseus {
namespace {

// Counting sort of the edges by one end: row starts, and the other ends in the order of the edges.
void compress(std::int32_t n, std::span<const std::int32_t> key, std::span<const std::int32_t> value,
              std::vector<std::int32_t>& begin, std::vector<std::int32_t>& values) {
  begin.assign(n + 1, 0);
  for (const std::int32_t k : key) ++begin[k + 1];
  for (std::int32_t i = 0; i < n; ++i) begin[i + 1] += begin[i];
  values.resize(value.size());
  std::vector<std::int32_t> next(begin.begin(), begin.end() - 1);
  for (std::size_t e = 0; e < key.size(); ++e) values[next[key[e]]++] = value[e];
}

}  // namespace

Graph::Graph(std::int32_t n, std::span<const std::int32_t> edge_from, std::span<const std::int32_t> edge_to) {
  if (edge_from.size() != edge_to.size()) throw std::invalid_argument("edge_from and edge_to differ in length");
  for (std::size_t e = 0; e < edge_from.size(); ++e) {
    if (edge_from[e] < 0 || edge_from[e] >= n || edge_to[e] < 0 || edge_to[e] >= n) {
      throw std::invalid_argument("edge " + std::to_string(e) + " leaves the range of instructions");
    }
  }
  compress(n, edge_from, edge_to, successor_begin, successors);
  compress(n, edge_to, edge_from, predecessor_begin, predecessors);
  std::vector<std::int32_t> waits_for(n);
  order.reserve(n);
  for (std::int32_t i = 0; i < n; ++i) {
    waits_for[i] = predecessor_begin[i + 1] - predecessor_begin[i];
    if (waits_for[i] == 0) order.push_back(i);
  }
  for (std::size_t k = 0; k < order.size(); ++k) {
    for (const std::int32_t j : successors_of(order[k])) {
      if (--waits_for[j] == 0) order.push_back(j);
    }
  }
  if (size() != n) throw std::invalid_argument("the edges close a cycle");
}

std::vector<TimePs> latest_ends(const Graph& graph, std::span<const TimePs> duration_ps, TimePs time_ps) {
  std::vector<TimePs> end(graph.size(), time_ps);
  for (std::int32_t k = graph.size() - 1; k >= 0; --k) {
    const std::int32_t i = graph.order[k];
    for (const std::int32_t j : graph.successors_of(i)) end[i] = std::min(end[i], end[j] - duration_ps[j]);
  }
  return end;
}

std::vector<TimePs> earliest_ends(const Graph& graph, std::span<const TimePs> duration_ps) {
  std::vector<TimePs> end(graph.size());
  for (const std::int32_t i : graph.order) {
    TimePs start = 0;
    for (const std::int32_t j : graph.predecessors_of(i)) start = std::max(start, end[j]);
    end[i] = start + duration_ps[i];
  }
  return end;
}

}  // namespace perseus
