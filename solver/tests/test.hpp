// A test harness in a page, so that building the tests takes a compiler and nothing else.
//
//   TEST(name) { CHECK(condition); CHECK_EQ(seen, expected); CHECK_THROWS(statement, "message"); }
//
// The first failed check ends its test. note() says what a loop is at, should one fail there.
#pragma once

#include <exception>
#include <ranges>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace perseus::test {

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case> cases;
inline std::string noted;
inline void note(std::string what) { noted = std::move(what); }

struct Registration {
  Registration(const char* name, void (*run)()) { cases.push_back({name, run}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what +
                           (noted.empty() ? "" : " at " + noted));
}

template <class T>
std::string show(const T& value) {
  if constexpr (std::ranges::range<T>) {
    std::string all;
    for (const auto& entry : value) all += (all.empty() ? "" : ", ") + show(entry);
    return "{" + all + "}";
  } else {  // decimal digits by hand: std::to_string knows no 128 bits
    const auto tens = value / 10;
    const auto digit = static_cast<int>(value % 10);
    return (tens != 0 ? show(tens) : value < 0 ? "-" : "") + std::to_string(digit < 0 ? -digit : digit);
  }
}

template <class A, class B>
void check_equal(const A& seen, const B& expected, const char* what, const char* file, int line) {
  if (!(seen == expected)) fail(file, line, std::string(what) + " is " + show(seen) + ", not " + show(expected));
}

}  // namespace perseus::test

#define TEST(name)                                                           \
  static void name();                                                        \
  static const perseus::test::Registration registration_##name(#name, name); \
  static void name()
#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) perseus::test::fail(__FILE__, __LINE__, "not true: " #condition); \
  } while (false)
#define CHECK_EQ(seen, expected) perseus::test::check_equal(seen, expected, #seen, __FILE__, __LINE__)
#define CHECK_THROWS(statement, message)                                                              \
  do {                                                                                                \
    std::string caught = "nothing";                                                                   \
    try {                                                                                             \
      (void)(statement);                                                                              \
    } catch (const std::exception& error) {                                                           \
      caught = error.what();                                                                          \
    }                                                                                                 \
    if (caught != (message)) perseus::test::fail(__FILE__, __LINE__, #statement " throws " + caught); \
  } while (false)
