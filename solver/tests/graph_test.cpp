#include "perseus/graph.hpp"

#include "problems.hpp"
#include "test.hpp"

namespace perseus::test {
namespace {

using Indices = std::vector<std::int32_t>;
using Times = std::vector<TimePs>;

Indices copy(std::span<const std::int32_t> values) { return {values.begin(), values.end()}; }

TEST(graph_keeps_neighbours_in_the_order_of_the_edges) {
  const Graph graph(4, Indices{2, 2, 0, 2}, Indices{3, 0, 3, 1});
  CHECK_EQ(copy(graph.successors_of(2)), (Indices{3, 0, 1}));
  CHECK_EQ(copy(graph.predecessors_of(3)), (Indices{2, 0}));
  CHECK_EQ(copy(graph.successors_of(1)), Indices{});
  CHECK_EQ(copy(graph.predecessors_of(2)), Indices{});
  CHECK_EQ(graph.size(), 4);
}

TEST(graph_order_puts_predecessors_first) {
  Random random(1);
  for (std::int64_t round = 0; round < 200; ++round) {
    const Problem problem =
        random_problem(random, {.max_instructions = 30, .max_vertices = 1, .max_duration_ps = 1, .max_slope_uw = 1});
    const Graph graph = problem.graph();
    Indices place(graph.size(), -1);
    for (std::int32_t k = 0; k < graph.size(); ++k) place[graph.order[k]] = k;
    CHECK(std::ranges::min(place) == 0);
    for (std::size_t e = 0; e < problem.edge_from.size(); ++e) CHECK(place[problem.edge_from[e]] < place[problem.edge_to[e]]);
  }
}

TEST(graph_may_be_empty_or_without_edges) {
  CHECK_EQ(Graph(0, {}, {}).size(), 0);
  CHECK_EQ(Graph(3, {}, {}).order, (Indices{0, 1, 2}));
}

TEST(graph_may_repeat_an_edge) {
  const Graph graph(2, Indices{0, 0}, Indices{1, 1});
  CHECK_EQ(graph.order, (Indices{0, 1}));
  CHECK_EQ(copy(graph.predecessors_of(1)), (Indices{0, 0}));
}

TEST(graph_refuses_cycles_and_strangers) {
  CHECK_THROWS(Graph(3, Indices{0, 1, 2}, Indices{1, 2, 0}), "the edges close a cycle");
  CHECK_THROWS(Graph(1, Indices{0}, Indices{0}), "the edges close a cycle");
  CHECK_THROWS(Graph(2, Indices{0, 0}, Indices{1, 2}), "edge 1 leaves the range of instructions");
  CHECK_THROWS(Graph(2, Indices{-1}, Indices{1}), "edge 0 leaves the range of instructions");
  CHECK_THROWS(Graph(0, Indices{0}, Indices{0}), "edge 0 leaves the range of instructions");
  CHECK_THROWS(Graph(2, Indices{0}, Indices{}), "edge_from and edge_to differ in length");
}

TEST(graph_passes_give_earliest_and_latest_ends) {
  //  0 (3) -> 1 (5) -> 3 (2)
  //     `---> 2 (1) ---'        4 (7), alone
  const Graph graph(5, Indices{0, 0, 1, 2}, Indices{1, 2, 3, 3});
  const Times duration{3, 5, 1, 2, 7};
  CHECK_EQ(earliest_ends(graph, duration), (Times{3, 8, 4, 10, 7}));
  CHECK_EQ(latest_ends(graph, duration, 12), (Times{5, 10, 10, 12, 12}));
}

}  // namespace
}  // namespace perseus::test
