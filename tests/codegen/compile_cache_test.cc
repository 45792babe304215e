#include "compiler/codegen/compile_cache.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/codegen/matmul_nest.h"

namespace temper {
namespace {

CodegenInput Product(const std::string& symbol, int64_t rows) {
  return {symbol, MatmulNest(rows, 8, 4, 2, 8, 8, false)};
}

TEST(CompileCache, WhatIsAlikeInEverythingIsCompiledOnce) {
  CompileCache cache;
  const Target host = HostTarget();
  const auto first = cache.Compile(Product("a", 8), host);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->kernels.front().symbol, "a");
  EXPECT_EQ(*cache.Compile(Product("a", 8), host), *first);
  EXPECT_NE(*cache.Compile(Product("b", 8), host), *first);
  EXPECT_NE(*cache.Compile(Product("a", 16), host), *first);
  CodegenInput in_place = Product("a", 8);
  in_place.in_place = 0;
  EXPECT_NE(*cache.Compile(in_place, host), *first);
  EXPECT_NE(*cache.Compile(Product("a", 8), *ParseTarget("llvm:nehalem")), *first);
}

TEST(CompileCache, WhoAsksAtTheSameTimeGetsTheSame) {
  CompileCache cache;
  const Target host = HostTarget();
  std::vector<std::shared_ptr<const Artifact>> got(4);
  std::vector<std::thread> threads;
  for (auto& module : got) threads.emplace_back([&] { module = *cache.Compile(Product("a", 8), host); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& module : got) EXPECT_EQ(module, got.front());
}

TEST(CompileCache, WhatCanNotBeCompiledSaysSoEachTime) {
  CompileCache cache;
  EXPECT_EQ(cache.Compile(Product("", 8), HostTarget()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.Compile(Product("", 8), HostTarget()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace temper
