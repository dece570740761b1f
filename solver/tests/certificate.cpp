#include "certificate.hpp"

#include <deque>
#include <limits>

#include "test.hpp"

namespace perseus::test {
namespace {

// Energy of an instruction above its least; more time than its cheapest choice takes changes nothing.
EnergyAj cost(const Problem& p, std::int32_t i, TimePs duration_ps) {
  EnergyAj energy = 0;
  for (std::int32_t k = p.last(i); k > p.first(i) && p.hull_ps[k] > duration_ps; --k) {
    energy += static_cast<EnergyAj>(p.slope_uw[k - 1]) * (p.hull_ps[k] - std::max(p.hull_ps[k - 1], duration_ps));
  }
  return energy;
}

EnergyAj least_of_cost_and_price(const Problem& p, std::int32_t i, PowerUw price_uw) {
  EnergyAj least = std::numeric_limits<EnergyAj>::max();
  for (std::int32_t k = p.first(i); k <= p.last(i); ++k) {  // a piecewise linear function is least at a vertex
    least = std::min(least, cost(p, i, p.hull_ps[k]) + static_cast<EnergyAj>(price_uw) * p.hull_ps[k]);
  }
  return least;
}

// Whether prices are a flow: each instruction hands all it gets from its predecessors on to its successors. Instructions without
// predecessors get it from the source, those without successors give it to the sink. Edmonds-Karp on outputs and inputs.
bool is_flow(const Graph& graph, std::span<const PowerUw> price_uw) {
  const std::int32_t n = graph.size(), from_all = 2 * n, to_all = 2 * n + 1;
  struct Arc {
    std::int32_t to;
    PowerUw capacity;
    std::size_t reverse;
  };
  std::vector<std::vector<Arc>> arcs(2 * n + 2);
  const auto connect = [&](std::int32_t a, std::int32_t b, PowerUw capacity) {
    arcs[a].push_back({b, capacity, arcs[b].size()});
    arcs[b].push_back({a, 0, arcs[a].size() - 1});
  };
  EnergyAj to_hand_on = 0, to_get = 0;  // many times a price
  for (std::int32_t i = 0; i < n; ++i) {
    if (!graph.successors_of(i).empty()) {
      connect(from_all, i, price_uw[i]);
      to_hand_on += price_uw[i];
    }
    if (!graph.predecessors_of(i).empty()) {
      connect(n + i, to_all, price_uw[i]);
      to_get += price_uw[i];
    }
    for (const std::int32_t j : graph.successors_of(i)) connect(i, n + j, price_uw[i]);
  }
  if (to_hand_on != to_get) return false;
  for (;;) {
    std::vector<Arc*> reached_by(arcs.size(), nullptr);
    std::deque<std::int32_t> queue{from_all};
    while (!queue.empty() && reached_by[to_all] == nullptr) {
      const std::int32_t v = queue.front();
      queue.pop_front();
      for (Arc& arc : arcs[v]) {
        if (arc.capacity == 0 || arc.to == from_all || reached_by[arc.to] != nullptr) continue;
        reached_by[arc.to] = &arc;
        queue.push_back(arc.to);
      }
    }
    if (reached_by[to_all] == nullptr) return to_hand_on == 0;
    const auto back = [&](const Arc* arc) -> Arc& { return arcs[arc->to][arc->reverse]; };
    PowerUw amount = reached_by[to_all]->capacity;
    for (std::int32_t v = to_all; v != from_all; v = back(reached_by[v]).to) amount = std::min(amount, reached_by[v]->capacity);
    for (std::int32_t v = to_all; v != from_all; v = back(reached_by[v]).to) {
      reached_by[v]->capacity -= amount;
      back(reached_by[v]).capacity += amount;
    }
    to_hand_on -= amount;
  }
}

TimePs longest_path(const Problem& p, const Graph& graph, const std::vector<TimePs>& duration_ps) {
  std::vector<TimePs> end(p.size());
  for (std::int32_t round = 0; round < p.size(); ++round) {  // as many as the longest path has instructions
    for (std::int32_t i = 0; i < p.size(); ++i) {
      TimePs start = 0;
      for (const std::int32_t j : graph.predecessors_of(i)) start = std::max(start, end[j]);
      end[i] = start + duration_ps[i];
    }
  }
  return std::ranges::max(end);
}

}  // namespace

EnergyAj energy_at(const FrontierResult& frontier, TimePs time_ps) {
  std::size_t k = 0;
  while (k + 1 < frontier.time_ps.size() && frontier.time_ps[k + 1] >= time_ps) ++k;
  return frontier.energy_aj[k] + static_cast<EnergyAj>(frontier.slope_uw[k]) * (frontier.time_ps[k] - time_ps);
}

void check_shape(const Problem& p, const FrontierResult& frontier) {
  std::vector<TimePs> fastest, slowest;
  for (std::int32_t i = 0; i < p.size(); ++i) {
    fastest.push_back(p.hull_ps[p.first(i)]);
    slowest.push_back(p.hull_ps[p.last(i)]);
  }
  const Graph graph = p.graph();
  const std::size_t last = frontier.time_ps.size() - 1;
  CHECK_EQ(frontier.slope_uw.size(), last + 1);
  CHECK_EQ(frontier.energy_aj.size(), last + 1);
  CHECK_EQ(frontier.time_ps.front(), longest_path(p, graph, slowest));
  CHECK_EQ(frontier.time_ps.back(), longest_path(p, graph, fastest));
  CHECK_EQ(frontier.energy_aj.front(), 0);
  CHECK_EQ(frontier.slope_uw.back(), 0);
  for (std::size_t k = 0; k < last; ++k) {
    CHECK(frontier.time_ps[k + 1] < frontier.time_ps[k]);
    CHECK(frontier.slope_uw[k] > (k > 0 ? frontier.slope_uw[k - 1] : 0));
    CHECK_EQ(frontier.energy_aj[k + 1], energy_at(frontier, frontier.time_ps[k + 1]));
  }
}

void certify(const Problem& p, const FrontierResult& frontier, const Sample& sample) {
  const Graph graph = p.graph();
  EnergyAj primal = 0, dual = 0;
  PowerUw flow_value = 0;
  for (std::int32_t i = 0; i < p.size(); ++i) {
    const TimePs window = sample.end_ps[i] - sample.start_ps[i];
    CHECK(sample.start_ps[i] >= 0 && sample.end_ps[i] <= sample.time_ps && window >= p.hull_ps[p.first(i)]);
    for (const std::int32_t j : graph.successors_of(i)) CHECK(sample.end_ps[i] <= sample.start_ps[j]);
    CHECK(sample.price_uw[i] >= 0);
    primal += cost(p, i, window);
    dual += least_of_cost_and_price(p, i, sample.price_uw[i]);
    if (graph.successors_of(i).empty()) flow_value += sample.price_uw[i];
  }
  dual -= static_cast<EnergyAj>(flow_value) * sample.time_ps;
  CHECK_EQ(primal, energy_at(frontier, sample.time_ps));
  CHECK_EQ(dual, primal);
  CHECK(is_flow(graph, sample.price_uw));
}

void certify_everywhere(const Problem& p) {
  const FrontierResult frontier = solve_frontier(p.view(), {});
  check_shape(p, frontier);
  std::vector<TimePs> wanted;
  for (std::size_t k = 0; k < frontier.time_ps.size(); ++k) {
    wanted.push_back(frontier.time_ps[k]);
    if (k + 1 == frontier.time_ps.size()) break;
    const TimePs middle = std::midpoint(frontier.time_ps[k], frontier.time_ps[k + 1]);
    if (middle < frontier.time_ps[k] && middle > frontier.time_ps[k + 1]) wanted.push_back(middle);
  }
  const FrontierResult again = solve_frontier(p.view(), {.extra_ps = wanted});
  CHECK_EQ(again.time_ps, frontier.time_ps);
  CHECK_EQ(again.slope_uw, frontier.slope_uw);
  CHECK_EQ(again.samples.size(), wanted.size());
  for (std::size_t s = 0; s < wanted.size(); ++s) {
    CHECK_EQ(again.samples[s].time_ps, wanted[s]);
    certify(p, frontier, again.samples[s]);
  }
}

EnergyAj least_energy_by_enumeration(const Problem& p, TimePs time_ps) {
  const Graph graph = p.graph();
  std::vector<TimePs> duration_ps;
  for (std::int32_t i = 0; i < p.size(); ++i) duration_ps.push_back(p.hull_ps[p.first(i)]);
  EnergyAj least = -1;
  for (std::int32_t i = 0; i < p.size();) {
    if (longest_path(p, graph, duration_ps) <= time_ps) {
      EnergyAj energy = 0;
      for (std::int32_t k = 0; k < p.size(); ++k) energy += cost(p, k, duration_ps[k]);
      if (least < 0 || energy < least) least = energy;
    }
    for (i = 0; i < p.size() && ++duration_ps[i] > p.hull_ps[p.last(i)]; ++i) duration_ps[i] = p.hull_ps[p.first(i)];
  }
  return least;
}

}  // namespace perseus::test
