// `temper explain` on a small model and databases whose every record is known.
#include <gmock/gmock.h>

#include <cctype>
#include <cmath>
#include <map>

#include "compiler/ops/template.h"
#include "storage/store.h"
#include "tests/cli/cli_fixture.h"

namespace temper::cli_test {
namespace {

using nlohmann::json;

// What is wrong with a page: a tag without its other half, text that is no text. Empty: nothing.
std::string Fault(const std::string& html) {
  std::vector<std::string> open;
  for (size_t i = 0; i < html.size();) {
    if (html[i] == '&') {
      const size_t end = html.find(';', i);
      const std::string entity = end == std::string::npos ? "" : html.substr(i, end - i + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;" && entity != "&#39;")
        return "unescaped & before " + html.substr(i, 20);
      i = end + 1;
      continue;
    }
    if (html[i] == '>') return "unescaped > before " + html.substr(i, 20);
    if (html[i] != '<') {
      ++i;
      continue;
    }
    // A tag: attributes are quoted, and hold no bracket.
    const size_t end = html.find_first_of("<>", i + 1);
    if (end == std::string::npos || html[end] == '<') return "unescaped < before " + html.substr(i, 20);
    const std::string tag = html.substr(i + 1, end - i - 1);
    i = end + 1;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "an attribute without its end: " + tag;
    if (tag == "!DOCTYPE html" || tag.rfind("meta ", 0) == 0 || tag.back() == '/') continue;
    const bool closes = tag[0] == '/';
    std::string name = closes ? tag.substr(1) : tag.substr(0, tag.find(' '));
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c); }))
      return "no tag: " + tag;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> closes nothing";
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

TEST(FaultTest, FindsEachKindOfFault) {
  EXPECT_EQ(Fault("<!DOCTYPE html><html><meta charset=\"utf-8\"><p class=\"a\">x &lt; y &amp; z</p></html>"), "");
  for (const char* page : {"<p>", "<p><b></p></b>", "</p>", "<p>a < b</p>", "<p>a > b</p>", "<p>a & b</p>",
                           "<p>a &b; c</p>", "<p class=\"a>b</p>", "<p>a <3 b</p>", "<p>a</p"}) {
    EXPECT_NE(Fault(page), "") << page;
  }
}

class ExplainTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    UseOwnRecords();
    db_ = dir_ + "/records.db";
    untuned_ = Json("explain " + model_ + " --json");
    ASSERT_TRUE(untuned_.contains("operators")) << untuned_.dump();
    for (const json& op : untuned_["operators"]) {
      if (op["operator"].get<std::string>().find("conv2d") != std::string::npos) conv_ = op;
      if (op["operator"].get<std::string>().rfind("matmul", 0) == 0) matmul_ = op;
    }
    ASSERT_FALSE(conv_.is_null());
    ASSERT_FALSE(matmul_.is_null());
  }

  json Json(const std::string& arguments) {
    const Result result = Temper(arguments);
    EXPECT_EQ(result.code, 0) << result.out;
    const std::vector<json> lines = result.Lines();
    EXPECT_EQ(lines.size(), 1u) << result.out;
    return lines.empty() ? json() : lines[0];
  }

  // Of the operator's default config, measured in `ms`.
  Record RecordOf(const json& op, double ms) {
    Record r;
    r.workload = op["workload"];
    absl::StatusOr<Workload> w = ParseWorkload(r.workload);
    EXPECT_TRUE(w.ok()) << w.status();
    r.anchor = AnchorText(*w);
    r.target = untuned_["target"];
    r.device_key = "here";
    r.threads = ParseTarget(r.target)->threads();
    r.template_name = op["default"]["template"];
    r.template_version = FindTemplate(r.template_name)->version;
    r.config = op["default"]["config"];
    r.codegen_id = "of-old";
    r.purpose = "final";
    r.costs_s = {ms * 1e-3, ms * 1e-3, ms * 1e-3};
    return r;
  }
  // Another config of the default's template, as far from it as can be.
  static Config OtherConfig(const Record& r) {
    const ConfigSpace space = FindTemplate(r.template_name)->space(*ParseWorkload(r.workload), *ParseTarget(r.target));
    const Config own = *ParseConfig(r.config);
    Config other = own;
    size_t most = 0;
    for (const Config& c : space.Enumerate(4096)) {
      size_t differ = 0;
      for (const auto& [knob, value] : c.values()) differ += value != own[knob] ? 1 : 0;
      if (differ > most) {
        most = differ;
        other = c;
      }
    }
    return other;
  }
  void Store(const std::vector<Record>& records) {
    auto store = OpenStore(db_);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Append(records).ok());
  }
  json Explained(const json& op) {
    const json all = Json("explain " + model_ + " --json --db " + db_);
    for (const json& o : all["operators"]) {
      if (o["workload"] == op["workload"]) return o;
    }
    ADD_FAILURE() << "not explained: " << op["workload"];
    return json();
  }

  std::string db_;
  json untuned_, conv_, matmul_;
};

TEST_F(ExplainTest, WithoutRecordsEveryOperatorRunsItsDefault) {
  double share = 0;
  for (const json& op : untuned_["operators"]) {
    EXPECT_EQ(op["level"], "default");
    EXPECT_FALSE(op["gain_measured"].get<bool>());
    EXPECT_TRUE(op["knobs"].empty());
    EXPECT_FALSE(op.contains("nearest"));
    EXPECT_EQ(op["tune"].get<std::string>(), "temper tune " + model_ + " --time-budget 2m");
    share += op["share"].get<double>();
  }
  EXPECT_NEAR(share, 1, 1e-9);
}

// Attention that was measured as one kernel: no template for it is a default, so its default is the fallback.
TEST_F(ExplainTest, KernelsThatAreOneOnlyWhereMeasuredHaveADefaultToo) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  AddNode(graph, "MatMul", {"q", "k"}, "scores");
  AddNode(graph, "Softmax", {"scores"}, "shares");
  AddNode(graph, "MatMul", {"shares", "v"}, "y");
  SetValue(graph->add_input(), "q", {2, 32, 16});
  SetValue(graph->add_input(), "k", {2, 16, 32});
  SetValue(graph->add_input(), "v", {2, 32, 16});
  SetValue(graph->add_output(), "y", {2, 32, 16});
  const std::string path = dir_ + "/attention.onnx";
  std::ofstream out(path, std::ios::binary);
  ASSERT_TRUE(model.SerializeToOstream(&out));
  out.close();
  const std::string explain = "explain " + path + " --json --target opencl";
  untuned_ = Json(explain);
  ASSERT_EQ(untuned_["operators"].size(), 3u) << untuned_.dump();
  std::vector<Record> records;
  for (const json& op : untuned_["operators"]) records.push_back(RecordOf(op, 1));
  Record one = records[0];
  one.workload =
      "(f32[2,32,16], f32[2,16,32], f32[2,32,16]) matmul(0,1) -> f32[2,32,32]; softmax(3; axis=2) -> f32[2,32,32]; "
      "matmul(4,2) -> f32[2,32,16]; anchor=2";
  one.anchor = AnchorText(ParseWorkload(one.workload).value());
  one.template_name = "gpu.attention";
  one.template_version = FindTemplate("gpu.attention")->version;
  const ConfigSpace space =
      FindTemplate("gpu.attention")->space(ParseWorkload(one.workload).value(), *ParseTarget(one.target));
  one.config = Text(space.Enumerate(1).at(0));
  records.push_back(one);
  Store(records);
  const json all = Json(explain + " --db " + db_);
  ASSERT_EQ(all["operators"].size(), 1u) << all.dump();
  EXPECT_EQ(all["operators"][0]["best"]["template"], "gpu.attention");
  EXPECT_EQ(all["operators"][0]["default"]["template"], "gpu.default");
}

TEST_F(ExplainTest, SaysWhatTuningChangedAndWhatItGained) {
  Record untuned = RecordOf(conv_, 2), best = RecordOf(conv_, 0.5);
  const Config config = OtherConfig(untuned);
  best.config = Text(config);
  Record slower = best;  // a first look at the same config does not count beside its final
  slower.purpose = "search";
  slower.costs_s = {4e-4, 4e-4, 4e-4};
  Record failed = untuned;
  failed.outcome = Outcome::kBuildFailed;
  failed.costs_s.clear();
  Store({untuned, best, slower, failed});
  const json op = Explained(conv_);
  EXPECT_DOUBLE_EQ(op["gain"], 4);
  EXPECT_TRUE(op["gain_measured"].get<bool>());
  EXPECT_DOUBLE_EQ(op["predicted_gain"].get<double>(),
                   op["default"]["draft_ms"].get<double>() / op["best"]["draft_ms"].get<double>());
  EXPECT_EQ(op["default"]["record"], 1);
  EXPECT_EQ(op["best"]["record"], 2);
  EXPECT_EQ(op["purpose"], "final");
  EXPECT_TRUE(op["stale"].get<bool>());
  EXPECT_EQ(op["trials"], 4);
  EXPECT_EQ(op["failures"], 1);
  // Exactly the knobs that differ.
  const Config before = *ParseConfig(untuned.config);
  std::map<std::string, std::pair<std::string, std::string>> wanted, said;
  for (const auto& [knob, value] : config.values()) {
    if (before[knob] != value) wanted[knob] = {std::to_string(before[knob]), std::to_string(value)};
  }
  for (const json& knob : op["knobs"]) said[knob["what"]] = {knob["default"], knob["best"]};
  EXPECT_FALSE(wanted.empty());
  EXPECT_EQ(said, wanted);
  EXPECT_FALSE(op["effects"].empty());
  for (const json& effect : op["effects"]) EXPECT_NE(effect["default"], effect["best"]);
}

TEST_F(ExplainTest, SaysWhereTheFinalsDisagreeWithTheSearchAndWhy) {
  Record untuned = RecordOf(conv_, 2), best = RecordOf(conv_, 1);
  best.config = Text(OtherConfig(untuned));
  const auto searched = [](Record r, double ms) {
    r.purpose = "search";
    r.costs_s = {ms * 1e-3};
    return r;
  };
  const auto why = [&](const char* db, const std::vector<Record>& records) -> std::string {
    db_ = dir_ + db;
    Store(records);
    const json op = Explained(conv_);
    return op.contains("search_gap") ? op["search_gap"]["why"].get<std::string>() : "";
  };
  EXPECT_EQ(why("/none.db", {untuned, best}), "");
  EXPECT_EQ(why("/alike.db", {untuned, best, searched(best, 0.95)}), "");
  EXPECT_EQ(why("/lucky.db", {untuned, best, searched(best, 0.8)}),
            "the search took 1 samples and the finals 3, and the best of many trials by few samples is a lucky one");
  EXPECT_THAT(why("/device.db", {untuned, best, searched(best, 0.8), searched(untuned, 1.6)}),
              ::testing::HasSubstr("the default's time changed alike, 1.25x"));
  Record warm = searched(best, 1.5);
  warm.cache_policy = "warm";
  EXPECT_EQ(why("/caches.db", {untuned, best, warm}), "the search left the caches as 'warm', the finals as 'model'");
  EXPECT_THAT(why("/unknown.db", {untuned, best, searched(best, 1.5)}), ::testing::HasSubstr("the records do not say"));
  const std::string shown = Temper("explain " + model_ + " --db " + db_).out;
  EXPECT_NE(shown.find(": the finals' time is 33 % shorter than the search's (1.5000 ms, then 1.0000 ms): the records"),
            std::string::npos)
      << shown;
}

TEST_F(ExplainTest, TheLongestOperatorComesFirst) {
  for (const bool conv_is_longer : {true, false}) {
    db_ = dir_ + (conv_is_longer ? "/a.db" : "/b.db");
    Store({RecordOf(conv_, conv_is_longer ? 3 : 1), RecordOf(matmul_, conv_is_longer ? 1 : 3)});
    const json operators = Json("explain " + model_ + " --json --db " + db_)["operators"];
    EXPECT_EQ(operators[0]["workload"], (conv_is_longer ? conv_ : matmul_)["workload"]);
    for (size_t i = 0; i < operators.size(); ++i) {
      EXPECT_EQ(operators[i]["number"], i + 1);
      if (i > 0) {
        EXPECT_LE(operators[i]["share"], operators[i - 1]["share"]);
      }
    }
  }
}

TEST_F(ExplainTest, NamesTheNearestRecordOfWhatIsNotTuned) {
  const auto matmul = [&](int columns, double ms) {
    Record r = RecordOf(matmul_, ms);
    r.workload = "(f32[1,288], const f32[288," + std::to_string(columns) + "]) matmul(0,1) -> f32[1," +
                 std::to_string(columns) + "]; anchor=0";
    r.anchor = AnchorText(*ParseWorkload(r.workload));
    return r;
  };
  Store({matmul(100, 1), matmul(12, 2), matmul(3, 3), RecordOf(conv_, 1)});
  const json by_shape = Explained(matmul_);
  EXPECT_EQ(by_shape["level"], "default");
  EXPECT_EQ(by_shape["nearest"]["record"], 2);
  EXPECT_NEAR(by_shape["nearest"]["log_distance"], 2 * std::log(1.2), 1e-9);
  EXPECT_FALSE(by_shape["best"]["measured"].get<bool>());
  // The same operator with something else fused to it goes before any other shape; its config is borrowed.
  Record kin = RecordOf(matmul_, 5);
  kin.workload.replace(kin.workload.rfind("anchor="), std::string::npos, "relu(2) -> f32[1,10]; anchor=0");
  kin.config = Text(OtherConfig(kin));
  ASSERT_TRUE(ParseWorkload(kin.workload).ok()) << kin.workload;
  Store({kin});
  const json borrowed = Explained(matmul_);
  EXPECT_EQ(borrowed["level"], "borrowed");
  EXPECT_EQ(borrowed["nearest"]["record"], 5);
  EXPECT_EQ(borrowed["best"]["config"], kin.config);
  EXPECT_FALSE(borrowed["best"]["measured"].get<bool>());
  EXPECT_NE(borrowed["tune"].get<std::string>().find("--db " + db_), std::string::npos);
}

TEST_F(ExplainTest, OneOperatorIsChosenByNumberOrName) {
  Store({RecordOf(conv_, 3), RecordOf(matmul_, 1)});
  const auto chosen = [&](const std::string& name) {
    std::vector<std::string> workloads;
    const json all = Json("explain " + model_ + " " + name + " --json --db " + db_);
    for (const json& op : all["operators"]) workloads.push_back(op["workload"]);
    return workloads;
  };
  EXPECT_EQ(chosen("1"), std::vector<std::string>{conv_["workload"]});
  EXPECT_EQ(chosen("conv2d"), std::vector<std::string>{conv_["workload"]});
  EXPECT_EQ(chosen("288x10"), std::vector<std::string>{matmul_["workload"]});
  EXPECT_EQ(Temper("explain " + model_ + " nothing --db " + db_).code, 1);
  EXPECT_EQ(Temper("explain").code, 2);
  const std::string details = Temper("explain " + model_ + " conv2d --db " + db_).out;
  EXPECT_NE(details.find("the default is the best"), std::string::npos) << details;
}

std::vector<Record> Failures(const Record& of_model) {
  std::vector<Record> records(6, of_model);
  for (Record& r : records) r.costs_s.clear();
  const char* errors[] = {
      "line 12: no room for 0x7f3a\nmore",       "\n  line 7: no room for 0x1", "line 1.5e-3: no room for 9",
      "signal 11 <script>alert(\"&\")</script>", "line 12: no room for 3",      ""};
  const char* outcomes[] = {"build_failed", "build_failed", "build_failed",
                            "run_crashed",  "wrong_answer", "build_failed"};
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].error = errors[i];
    records[i].outcome = *ParseOutcome(outcomes[i]);
  }
  return records;
}

TEST_F(ExplainTest, GroupsFailuresByClassAndCause) {
  std::vector<Record> records = Failures(RecordOf(conv_, 1));
  Record elsewhere = records[0];  // not in the model
  elsewhere.workload = "(f32[4]) relu(0) -> f32[4]; anchor=0";
  elsewhere.template_name = "default";
  records.push_back(elsewhere);
  records.push_back(RecordOf(matmul_, 1));
  Store(records);
  using Groups = std::map<std::pair<std::string, std::string>, int>;
  const auto groups = [](const json& failures) {
    Groups found;
    for (const json& g : failures["groups"]) found[{g["outcome"], g["cause"]}] = g["count"];
    return found;
  };
  Groups wanted = {{{"build_failed", "line N: no room for N"}, 4},
                   {{"build_failed", "no message"}, 1},
                   {{"run_crashed", "signal N <script>alert(\"&\")</script>"}, 1},
                   {{"wrong_answer", "line N: no room for N"}, 1}};
  const json all = Json("explain --failures --json --db " + db_);
  EXPECT_EQ(groups(all), wanted);
  EXPECT_EQ(all["attempts"], 8);
  EXPECT_EQ(all["failures"], 7);
  EXPECT_EQ(all["groups"][0]["count"], 4);
  EXPECT_EQ(all["groups"][0]["workloads"], 2);
  EXPECT_EQ(all["groups"][0]["example"]["record"], 7);
  EXPECT_EQ(all["groups"][0]["templates"]["default"], 1);
  wanted[{"build_failed", "line N: no room for N"}] = 3;
  const json of_model = Json("explain --failures " + model_ + " --json --db " + db_);
  EXPECT_EQ(groups(of_model), wanted);
  EXPECT_EQ(of_model["attempts"], 7);
}

TEST_F(ExplainTest, PagesStandAloneAndEscapeWhatTheyShow) {
  std::vector<Record> records = Failures(RecordOf(conv_, 1));
  Record other = RecordOf(conv_, 0.5);
  other.config = Text(OtherConfig(other));
  records.insert(records.end(), {RecordOf(conv_, 1), other});
  for (Record& r : records) r.device_key = "<b>&'\"";
  Store(records);
  const std::string model = dir_ + "/a<i>&b.onnx";
  fs::copy_file(model_, model);
  const std::string page = dir_ + "/page.html", failures = dir_ + "/failures.html";
  ASSERT_EQ(Temper("explain '" + model + "' --db " + db_ + " --html " + page).code, 0);
  ASSERT_EQ(Temper("explain --failures --db " + db_ + " --html " + failures).code, 0);
  for (const std::string& path : {page, failures}) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const std::string html = text.str();
    EXPECT_EQ(Fault(html), "") << html;
    for (const char* outside : {"<script", "<link", "<img", "src=", "http", "url(", "@import"})
      EXPECT_EQ(html.find(outside), std::string::npos) << path << " has " << outside;
    EXPECT_NE(html.find("signal N &lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;"), std::string::npos);
    // The target has no blank to break at, and workloads are as long.
    EXPECT_NE(html.find("\np { margin: .3rem 0; overflow-wrap: anywhere; }\n"), std::string::npos);
    if (path != page) continue;
    EXPECT_NE(html.find("<h1>a&lt;i&gt;&amp;b</h1>"), std::string::npos);
    for (const char* plot : {"Best over trials", "Best over time", "Predicted and measured"})
      EXPECT_NE(html.find(std::string("<title>") + plot), std::string::npos) << plot;
    EXPECT_NE(html.find("<path class=\"dots\" d=\"M"), std::string::npos);
    EXPECT_NE(html.find("<path class=\"steps\" d=\"M"), std::string::npos);
  }
}

}  // namespace
}  // namespace temper::cli_test
