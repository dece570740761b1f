// The residual graph of the flow: its vertices and arcs, and what they still take.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "perseus/frontier.hpp"
#include "perseus/graph.hpp"

namespace perseus {

inline constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();

using Vertex = std::int32_t;
using Arc = std::int32_t;           // a precedence arc, or kBundle
inline constexpr Arc kBundle = -1;  // the arcs of the instruction that the vertex belongs to

// Every instruction is two vertices, its begin (even) and its end (odd, the next):
//
//   source -> begin(i) ===> end(i) -> begin(j) ===> end(j) -> sink      (->: precedence, ===>: an instruction's bundle of arcs)
//
// The source counts as an end and the sink as a begin, so that precedence arcs go from ends to begins.
class ResidualGraph {
 public:
  struct Link {
    Vertex other;
    Arc arc;
  };

  // An instruction's parallel arcs fill from the longest to the shortest, so one number says which of them is filling.
  struct Bundle {
    PowerUw flow = 0;
    TimePs filling_ps = 0;   // length of the arc that the next unit of flow takes
    TimePs filled_ps = 0;    // length of the arc that the last one took
    std::int32_t level = 0;  // hull vertex of the arc that fills: slope[level] <= flow < slope[level - 1]
    std::int32_t first = 0;  // hull vertex of the fastest choice
  };

  // Instructions lie in memory in the given order. The problem's spans must outlive the graph.
  ResidualGraph(const FrontierProblem& problem, const Graph& graph, std::span<const std::int32_t> order);

  [[nodiscard]] Vertex begin_of(std::int32_t instruction) const { return begin_of_[instruction]; }
  [[nodiscard]] Vertex sink() const { return static_cast<Vertex>(link_begin_.size()) - 3; }
  [[nodiscard]] Vertex source() const { return sink() + 1; }
  [[nodiscard]] std::size_t num_vertices() const { return link_begin_.size() - 1; }
  static bool is_end(Vertex v) { return (v & 1) == 1; }

  // Precedence arcs at a vertex, all of one direction.
  [[nodiscard]] std::span<const Link> links(Vertex v) const {
    return {links_.data() + link_begin_[v], links_.data() + link_begin_[v + 1]};
  }
  [[nodiscard]] const Bundle& bundle(Vertex v) const { return bundles_[v >> 1]; }  // of the sink and the source: an empty one
  [[nodiscard]] PowerUw flow(Arc arc) const { return flow_[arc]; }

  // Flow that a residual arc still takes before its length changes or it vanishes.
  [[nodiscard]] PowerUw capacity(Vertex from, Arc arc) const;
  // Sends flow; returns whether the arc is full now.
  bool push(Vertex from, Arc arc, PowerUw amount);

 private:
  void measure(Bundle& bundle) const;

  std::span<const TimePs> hull_ps_;
  std::span<const PowerUw> slope_uw_;
  std::vector<Vertex> begin_of_;          // (num_instructions)
  std::vector<std::int32_t> link_begin_;  // (num_vertices + 1)
  std::vector<Link> links_;
  std::vector<Bundle> bundles_;
  std::vector<PowerUw> flow_;  // (num_precedence_arcs)
};

}  // namespace perseus
