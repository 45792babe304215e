// The main of all tests. `--file=NAME` runs the tests that the source NAME has: a program has several sources, since
// compiling them as one takes a part of the time, and each of them is run in a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <string_view>

namespace {

// "Suite.Test:Suite.Test:". Empty: no test is from there.
std::string TestsOf(const std::string& file) {
  std::string tests;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      const std::string from = std::string("/") + test.file();
      if (from.ends_with("/" + file)) tests += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return tests;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kOption = "--file=";
  // Where tests are chosen already, it is by a person, or for the child of a test that sees itself die.
  if (GTEST_FLAG_GET(filter) == "*" && argc > 1 && std::string_view(argv[1]).starts_with(kOption)) {
    const std::string file = argv[1] + kOption.size(), tests = TestsOf(file);
    if (tests.empty()) {
      std::cerr << "no test is from " << file << "\n";
      return 1;
    }
    GTEST_FLAG_SET(filter, tests);
  }
  return RUN_ALL_TESTS();
}
