// Arrays that do not describe a problem.
#include <chrono>
#include <limits>
#include <stdexcept>
#include <utility>

#include "certificate.hpp"
#include "test.hpp"

namespace perseus::test {
namespace {

template <class Change>
FrontierResult solve_changed(Change change) {
  Problem problem = one_instruction();
  problem.add({1, 2}, {3}, {0});
  change(problem);
  return solve_frontier(problem.view(), {});
}

TEST(input_that_is_no_problem_is_refused) {
  CHECK_THROWS(solve_changed([](Problem& p) { p.curve_of.clear(); }), "no instructions");
  CHECK_THROWS(solve_changed([](Problem& p) { p.curve_of[1] = 2; }), "instruction 1 has no curve");
  CHECK_THROWS(solve_changed([](Problem& p) { p.curve_of[0] = -1; }), "instruction 0 has no curve");
  CHECK_THROWS(solve_changed([](Problem& p) { p.edge_to[0] = 2; }), "edge 0 leaves the range of instructions");
  CHECK_THROWS(solve_changed([](Problem& p) { p.edge_to[0] = 0; }), "the edges close a cycle");
  CHECK_THROWS(solve_changed([](Problem& p) { p.edge_to.clear(); }), "edge_from and edge_to differ in length");
}

TEST(input_that_is_no_hull_is_refused) {
  constexpr const char* kNoCover = "hull_begin does not cover hull_ps and slope_uw";
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_begin.clear(); }), kNoCover);
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_begin[0] = 1; }), kNoCover);
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_begin.back() = 4; }), kNoCover);
  CHECK_THROWS(solve_changed([](Problem& p) { p.slope_uw.pop_back(); }), kNoCover);
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_begin[1] = 0; }), "curve 0: its hull has no vertex");
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_begin[1] = 999; }), "curve 1: its hull has no vertex");
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_ps[0] = -1; }), "curve 0: its duration is negative");
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_ps[1] = 300; }), "curve 0: the durations of its hull do not ascend");
  CHECK_THROWS(solve_changed([](Problem& p) { p.slope_uw[1] = 9; }), "curve 0: the slopes of its hull do not fall");
  CHECK_THROWS(solve_changed([](Problem& p) { p.slope_uw[3] = 0; }), "curve 1: the slopes of its hull do not fall");
  CHECK_THROWS(solve_changed([](Problem& p) { p.slope_uw[4] = 1; }), "curve 1: the last slope of its hull is not 0");
}

TEST(input_that_overflows_is_refused) {
  constexpr const char* kTooMuch = "durations or slopes add up to more than 64 bits hold";
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  CHECK_THROWS(solve_changed([](Problem& p) { p.hull_ps[2] = p.hull_ps[4] = kHuge; }), kTooMuch);
  CHECK_THROWS(solve_changed([](Problem& p) { p.slope_uw[0] = p.slope_uw[3] = kHuge; }), kTooMuch);
}

// One change anywhere makes arrays that are refused, or another problem that is solved.
TEST(input_with_a_random_fault_is_refused_or_solved) {
  const auto stop = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  int num_refused = 0, num_solved = 0;
  for (std::uint64_t seed = 0; seed < 1000 || std::chrono::steady_clock::now() < stop; ++seed) {
    note("seed " + std::to_string(seed));
    Random random(seed);
    Problem p = random_problem(random, {.max_instructions = 8, .max_vertices = 4, .max_duration_ps = 9, .max_slope_uw = 9});
    const auto spoil = [&]<class T>(std::vector<T>& values) {
      constexpr T kMost = std::numeric_limits<T>::max();
      const std::vector<T> odd{-1, 0, 1, 2, 1000, kMost / 4, kMost - 1, kMost, std::numeric_limits<T>::min()};
      const T value = odd[between(random, 0, std::ssize(odd) - 1)];
      switch (between(random, 0, 4)) {
        case 0: values.push_back(value); break;
        case 1:
          if (!values.empty()) values.pop_back();
          break;
        default:
          if (!values.empty()) values[between(random, 0, std::ssize(values) - 1)] = value;
      }
    };
    switch (between(random, 0, 5)) {
      case 0: spoil(p.hull_begin); break;
      case 1: spoil(p.hull_ps); break;
      case 2: spoil(p.slope_uw); break;
      case 3: spoil(p.curve_of); break;
      case 4: spoil(p.edge_from); break;
      default: spoil(p.edge_to);
    }
    try {
      certify_everywhere(p);
      ++num_solved;
    } catch (const std::invalid_argument&) {
      ++num_refused;
    }
  }
  CHECK(num_refused > 100 && num_solved > 100);
}

}  // namespace
}  // namespace perseus::test
