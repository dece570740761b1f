#include "residual.hpp"

#include <utility>

namespace perseus {

ResidualGraph::ResidualGraph(const FrontierProblem& problem, const Graph& graph, std::span<const std::int32_t> order)
    : hull_ps_(problem.hull_ps),
      slope_uw_(problem.slope_uw),
      begin_of_(order.size()),
      link_begin_(2 * order.size() + 3),
      bundles_(order.size() + 1) {
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::int32_t i = order[k];
    begin_of_[i] = static_cast<Vertex>(2 * k);
    bundles_[k].first = problem.hull_begin[problem.curve_of[i]];
    bundles_[k].level = problem.hull_begin[problem.curve_of[i] + 1] - 1;
    measure(bundles_[k]);
  }
  std::vector<std::pair<Vertex, Vertex>> arcs;
  for (const std::int32_t i : order) {
    if (graph.predecessors_of(i).empty()) arcs.emplace_back(source(), begin_of_[i]);
    for (const std::int32_t j : graph.successors_of(i)) arcs.emplace_back(begin_of_[i] + 1, begin_of_[j]);
    if (graph.successors_of(i).empty()) arcs.emplace_back(begin_of_[i] + 1, sink());
  }
  flow_.resize(arcs.size());
  for (const auto& [from, to] : arcs) {
    ++link_begin_[from + 1];
    ++link_begin_[to + 1];
  }
  for (std::size_t v = 0; v < num_vertices(); ++v) link_begin_[v + 1] += link_begin_[v];
  links_.resize(2 * arcs.size());
  std::vector<std::int32_t> next(link_begin_.begin(), link_begin_.end() - 1);
  for (std::size_t arc = 0; arc < arcs.size(); ++arc) {
    const auto [from, to] = arcs[arc];
    links_[next[from]++] = {.other = to, .arc = static_cast<Arc>(arc)};
    links_[next[to]++] = {.other = from, .arc = static_cast<Arc>(arc)};
  }
}

PowerUw ResidualGraph::capacity(Vertex from, Arc arc) const {
  if (arc != kBundle) return is_end(from) ? kInfinite : flow_[arc];
  const Bundle& b = bundle(from);
  if (!is_end(from)) return b.level == b.first ? kInfinite : slope_uw_[b.level - 1] - b.flow;
  const std::int32_t level = b.flow > slope_uw_[b.level] ? b.level : b.level + 1;
  return b.flow - slope_uw_[level];
}

bool ResidualGraph::push(Vertex from, Arc arc, PowerUw amount) {
  if (arc != kBundle) {
    if (is_end(from)) {
      flow_[arc] += amount;
      return false;
    }
    flow_[arc] -= amount;
    return flow_[arc] == 0;
  }
  Bundle& b = bundles_[from >> 1];
  bool is_full = false;
  if (is_end(from)) {
    if (b.flow == slope_uw_[b.level]) ++b.level;
    b.flow -= amount;
    is_full = b.flow == slope_uw_[b.level];
  } else {
    b.flow += amount;
    is_full = b.level > b.first && b.flow == slope_uw_[b.level - 1];
    if (is_full) --b.level;
  }
  measure(b);
  return is_full;
}

void ResidualGraph::measure(Bundle& b) const {
  b.filling_ps = hull_ps_[b.level];
  b.filled_ps = b.flow > slope_uw_[b.level] || b.flow == 0 ? b.filling_ps : hull_ps_[b.level + 1];
}

}  // namespace perseus
