// Runs all tests, or those whose names contain the first argument.
#include <cstdio>
#include <cstring>

#include "test.hpp"

int main(int argc, char** argv) {
  int num_run = 0, num_failed = 0;
  for (const perseus::test::Case& test : perseus::test::cases) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    ++num_run;
    perseus::test::note("");
    try {
      test.run();
    } catch (const std::exception& error) {
      ++num_failed;
      std::printf("FAILED %s\n  %s\n", test.name, error.what());
    }
  }
  std::printf("%d tests, %d failed\n", num_run, num_failed);
  return num_run > 0 && num_failed == 0 ? 0 : 1;
}
