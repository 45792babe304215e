#include "base/natural_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace temper {
namespace {

TEST(NaturalOrder, NumbersCountAsNumbers) {
  // "a-01-b2" and "a-1-z" hold the same number, so what follows it decides.
  const std::vector<std::string> ordered = {"",
                                            "10",
                                            "a",
                                            "a-",
                                            "a-0",
                                            "a-00",
                                            "a-01-b2",
                                            "a-1-z",
                                            "device",
                                            "device-2",
                                            "device-2-b1",
                                            "device-2-b9",
                                            "device-2-b10",
                                            "device-10",
                                            "device-x",
                                            "epyc-zen4",
                                            "gpu99999999999999999998",
                                            "gpu99999999999999999999"};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(NaturalLess(ordered[i], ordered[j]), i < j) << "'" << ordered[i] << "' and '" << ordered[j] << "'";
    }
  }
}

}  // namespace
}  // namespace temper
