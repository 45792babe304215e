// The suite that every store passes: see contract_test.cc and jobs_test.cc.
#pragma once

#include <memory>

#include "tests/storage/testing.h"

namespace temper {

struct StoreKind {
  const char* name;
  const char* url;  // "%" stands for a path in a new folder
};
inline constexpr StoreKind kStoreKinds[] = {{"sqlite", "sqlite:%"}, {"memory", "memory:"}};

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  StoreContract() {
    std::string url = GetParam().url;
    if (url.ends_with('%')) url = url.substr(0, url.size() - 1) + folder_.File("records.db");
    auto store = OpenStore(url);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = std::move(*store);
  }

  int64_t Add(const Record& r) {
    const auto ids = store_->Append({&r, 1});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? ids->front() : -1;
  }
  absl::Status Try(const Record& r) { return store_->Append({&r, 1}).status(); }
  std::optional<BestAnswer> Best(const BestQuery& query) {
    auto answer = store_->Best(query);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : std::nullopt;
  }
  // "level config", or "nothing".
  std::string BestText(const BestQuery& query) {
    const auto answer = Best(query);
    return answer.has_value() ? answer->level + " " + answer->record.config : "nothing";
  }

  TempFolder folder_;
  std::unique_ptr<Store> store_;
};

}  // namespace temper
