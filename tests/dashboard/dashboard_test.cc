#include "tuner_server/dashboard/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "base/utf8.h"
#include "proto/convert.h"
#include "tuner_server/dashboard/views.h"

namespace temper {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr char kMarkup[] = "<script>alert('x')</script>\"&";
const char* const kApis[] = {"/api/status",  "/api/jobs",   "/api/job",      "/api/devices",
                             "/api/records", "/api/models", "/api/failures", "/api/throughput"};

class DashboardTest : public ::testing::Test {
 protected:
  // `initialised`: callers have to show a token.
  void Open(bool initialised) {
    clock_.Advance(absl::Hours(24 * 365 * 50));
    std::optional<ServerDirectory> directory;
    if (initialised) {
      const std::string path = parent_.path() + "/server";
      ASSERT_TRUE(InitServerDirectory(path, {}, clock_.Wall()).ok());
      directory = *OpenServerDirectory(path);
    }
    gate_ = *Gate::Open(store_->access(), clock_, std::move(directory));
    core_ = std::make_unique<ServerCore>(*store_, clock_, CoreOptions());
    ASSERT_TRUE(core_->Start().ok());
    dashboard_ = std::make_unique<Dashboard>(*core_, *gate_, DashboardOptions{.hosts = {"Tuner.example"}});
    routes_ = dashboard_->Routes();
  }
  std::string Token(Scopes scopes, absl::Time expires = absl::InfiniteFuture()) {
    return gate_->AddToken({"alice", scopes, {}, expires})->text;
  }
  static HttpRequest Request(const std::string& path, std::map<std::string, std::string> query = {}) {
    HttpRequest request{path, std::move(query)};
    request.headers["host"] = "127.0.0.1:9191";
    request.local = true;
    return request;
  }
  HttpReply Ask(const HttpRequest& request) {
    for (const HttpRoute& route : routes_) {
      if (route.path == request.path && route.method == request.method) return route.reply(request);
    }
    ADD_FAILURE() << "no route " << request.path;
    return {};
  }
  HttpReply Ask(const std::string& path, std::map<std::string, std::string> query = {}) {
    return Ask(Request(path, std::move(query)));
  }
  Json Got(const std::string& path, std::map<std::string, std::string> query = {}) {
    const HttpReply reply = Ask(path, std::move(query));
    EXPECT_EQ(reply.code, 200) << reply.body;
    return Json::parse(reply.body);
  }
  std::string ErrorOf(const HttpReply& reply) { return Json::parse(reply.body)["error"].get<std::string>(); }

  HttpReply LogIn(const std::string& token, const std::map<std::string, std::string>& headers = {}) {
    HttpRequest request = Request("/login");
    request.method = "POST";
    request.body = "token=" + token;
    for (const auto& [name, value] : headers) request.headers[name] = value;
    return Ask(request);
  }
  // What a browser sends back.
  static std::string CookieOf(const HttpReply& reply) {
    for (const auto& [name, value] : reply.headers) {
      if (name == "Set-Cookie") return value.substr(0, value.find(';'));
    }
    return "";
  }
  int CodeWith(const std::string& header, const std::string& value, const std::string& path = "/api/jobs") {
    HttpRequest request = Request(path);
    request.headers[header] = value;
    return Ask(request).code;
  }

  int64_t AddJob(const std::string& model, const std::string& state = "done") {
    JobRow job;
    job.model = model;
    job.device_key = "laptop";
    job.state = state;
    job.owner = "alice";
    job.trials = 12;
    job.best_ms = 2.5;
    job.priority = 3;
    return *store_->CreateJob(job);
  }

  TemporaryDirectory parent_ = *TemporaryDirectory::Make();
  FakeClock clock_;
  std::unique_ptr<Store> store_ = *OpenStore("memory:");
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<Dashboard> dashboard_;
  std::vector<HttpRoute> routes_;
};

Record Trial(int64_t job, const std::string& workload, double seconds) {
  Record r;
  r.workload = r.anchor = workload;
  r.target = "llvm";
  r.device_key = "laptop";
  r.fingerprint = "f";
  r.template_name = "t";
  r.config = "x=1";
  r.codegen_id = "c";
  r.tuner = "random";
  r.job = job;
  r.costs_s = {seconds, seconds, seconds};
  return r;
}

TEST_F(DashboardTest, AnInitialisedServerTellsNothingWithoutAToken) {
  Open(true);
  for (const char* api : kApis) {
    const HttpReply reply = Ask(api, absl::EndsWith(api, "/job") ? std::map<std::string, std::string>{{"id", "1"}}
                                                                 : std::map<std::string, std::string>{});
    EXPECT_EQ(reply.code, 401) << api;
    EXPECT_EQ(ErrorOf(reply), "log in with a token");
  }
  EXPECT_FALSE(Got("/api/session")["allowed"].get<bool>());
  EXPECT_EQ(Ask("/").code, 200);  // it has a form, and nothing else
}

// The logins are no thread's but one, and the store may take long.
TEST_F(DashboardTest, AllButItsFilesIsSlow) {
  Open(true);
  for (const HttpRoute& route : routes_) {
    const bool file = route.path == "/" || route.path == "/dashboard.css" || route.path == "/dashboard.js";
    EXPECT_NE(route.slow, file) << route.path;
  }
}

TEST_F(DashboardTest, ABearerNeedsTheScopeRead) {
  Open(true);
  EXPECT_EQ(CodeWith("authorization", "Bearer " + Token({Scope::kRead})), 200);
  EXPECT_EQ(CodeWith("authorization", "Bearer " + Token({Scope::kAdmin})), 200);
  EXPECT_EQ(CodeWith("authorization", "Bearer " + Token({Scope::kMeasure})), 403);
  EXPECT_EQ(CodeWith("authorization", "Bearer " + Token({Scope::kSubmit})), 403);
  for (const char* bad : {"Bearer x", "Bearer ", "x", "Basic YTpi", "Bearer tmpr_0000_0000"}) {
    EXPECT_EQ(CodeWith("authorization", bad), 401) << bad;
  }
}

TEST_F(DashboardTest, ALoginGivesACookieThatNoScriptReadsAndNoOtherSiteSends) {
  Open(true);
  const HttpReply reply = LogIn(Token({Scope::kRead}));
  ASSERT_EQ(reply.code, 204) << reply.body;
  std::string cookie;
  for (const auto& [name, value] : reply.headers) cookie = name == "Set-Cookie" ? value : cookie;
  EXPECT_THAT(cookie, HasSubstr("; HttpOnly; SameSite=Strict; Max-Age=43200"));
  EXPECT_THAT(cookie, Not(HasSubstr("Secure")));
  EXPECT_EQ(CodeWith("cookie", CookieOf(reply)), 200);
  EXPECT_EQ(CodeWith("cookie", "other=1; " + CookieOf(reply)), 200);
  EXPECT_EQ(CodeWith("cookie", CookieOf(reply) + "0"), 401);
  EXPECT_EQ(CodeWith("cookie", "temper_login="), 401);
  EXPECT_NE(CookieOf(reply), CookieOf(LogIn(Token({Scope::kRead}))));
  const HttpReply encrypted = LogIn(Token({Scope::kRead}), {{"x-forwarded-proto", "https"}});
  std::string secure;
  for (const auto& [name, value] : encrypted.headers) secure = name == "Set-Cookie" ? value : secure;
  EXPECT_TRUE(absl::EndsWith(secure, "; Secure")) << secure;
}

TEST_F(DashboardTest, ALoginNeedsAGoodTokenFromThePageItself) {
  Open(true);
  const std::string token = Token({Scope::kRead});
  EXPECT_EQ(LogIn("x").code, 401);
  EXPECT_EQ(LogIn("").code, 400);
  EXPECT_EQ(LogIn("%zz").code, 400);
  EXPECT_EQ(LogIn(Token({Scope::kMeasure})).code, 403);
  EXPECT_EQ(LogIn(token, {{"origin", "http://evil.example"}}).code, 403);
  EXPECT_EQ(LogIn(token, {{"origin", "null"}}).code, 403);
  EXPECT_EQ(LogIn(token, {{"sec-fetch-site", "cross-site"}}).code, 403);
  EXPECT_EQ(LogIn(token, {{"host", "evil.example"}}).code, 421);
  EXPECT_EQ(LogIn(token, {{"origin", "http://127.0.0.1:9191"}, {"sec-fetch-site", "same-origin"}}).code, 204);
  HttpRequest far = Request("/login");
  far.method = "POST";
  far.body = "token=" + token;
  far.local = false;
  EXPECT_EQ(Ask(far).code, 401);  // the token crossed a wire that others can read
}

TEST_F(DashboardTest, RefusedLoginsAreCountedAndLeaveNoControlsInTheAudit) {
  Open(true);
  EXPECT_EQ(LogIn("tmpr_%1b[2J%1b[H%1b[8maaaaa_" + std::string(43, 'x')).code, 401);
  const auto audit = store_->access().Audit(0, 10);
  ASSERT_TRUE(audit.ok());
  const auto refused = std::ranges::find(*audit, "refused", &AuditRow::verdict);
  ASSERT_NE(refused, audit->end());
  EXPECT_FALSE(HasControls(refused->principal)) << refused->principal;
  EXPECT_THAT(core_->metrics().Text(), HasSubstr("temper_denied_calls_total{reason=\"unauthenticated\"} 1"));
}

TEST_F(DashboardTest, APageOfAnotherServerIsAnsweredNothing) {
  Open(false);
  for (const char* path : {"/api/records", "/api/session"}) {
    EXPECT_EQ(CodeWith("sec-fetch-site", "cross-site", path), 403);
    EXPECT_EQ(CodeWith("origin", "http://127.0.0.1:8000", path), 403);
    EXPECT_EQ(CodeWith("sec-fetch-site", "same-origin", path), 200);
  }
}

TEST_F(DashboardTest, ALoginEndsWithItsTokenByTimeOrByLoggingOut) {
  Open(true);
  const std::string token = Token({Scope::kRead});
  const std::string cookie = CookieOf(LogIn(token)), second = CookieOf(LogIn(token));
  HttpRequest out = Request("/logout");
  out.method = "POST";
  out.headers["cookie"] = second;
  const HttpReply reply = Ask(out);
  EXPECT_EQ(reply.code, 204);
  EXPECT_EQ(CodeWith("cookie", second), 401);
  EXPECT_EQ(CodeWith("cookie", cookie), 200);
  ASSERT_TRUE(gate_->RevokeToken(gate_->Tokens().back().id).ok() && gate_->RevokeToken(gate_->Tokens()[0].id).ok());
  EXPECT_EQ(CodeWith("cookie", cookie), 401);

  const std::string lasting = CookieOf(LogIn(Token({Scope::kRead})));
  clock_.Advance(Logins::kLifetime - absl::Seconds(1));
  EXPECT_EQ(CodeWith("cookie", lasting), 200);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(CodeWith("cookie", lasting), 401);

  const std::string short_lived = CookieOf(LogIn(Token({Scope::kRead}, clock_.Wall() + absl::Minutes(5))));
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(CodeWith("cookie", short_lived), 401);
}

TEST_F(DashboardTest, SoManyLoginsOfATokenAreKeptAndOthersAreLeftAlone) {
  Open(true);
  const std::string token = Token({Scope::kRead});
  const std::string of_another = CookieOf(LogIn(Token({Scope::kRead})));
  const std::string first = CookieOf(LogIn(token)), second = CookieOf(LogIn(token));
  for (size_t i = 2; i < Logins::kMostOfToken; ++i) LogIn(token);
  EXPECT_EQ(CodeWith("cookie", first), 200);
  const std::string last = CookieOf(LogIn(token));
  EXPECT_EQ(CodeWith("cookie", first), 401);
  EXPECT_EQ(CodeWith("cookie", second), 200);
  EXPECT_EQ(CodeWith("cookie", last), 200);
  EXPECT_EQ(CodeWith("cookie", of_another), 200);
  for (size_t i = 0; i < Logins::kMost; ++i) LogIn(token);
  EXPECT_EQ(CodeWith("cookie", of_another), 200);
}

TEST_F(DashboardTest, SoManyLoginsOfAllTokensAreKept) {
  Open(true);
  const std::string first = CookieOf(LogIn(Token({Scope::kRead})));
  for (size_t i = 1; i < Logins::kMost; i += Logins::kMostOfToken) {
    EXPECT_EQ(CodeWith("cookie", first), 200) << i;
    const std::string token = Token({Scope::kRead});
    for (size_t j = 0; j < Logins::kMostOfToken; ++j) LogIn(token);
  }
  EXPECT_EQ(CodeWith("cookie", first), 401);
}

TEST_F(DashboardTest, OtherMachinesAndOtherNamesAreRefused) {
  Open(false);
  HttpRequest far = Request("/api/jobs");
  far.local = false;
  EXPECT_EQ(Ask(far).code, 403);
  for (const char* host : {"127.0.0.1", "127.0.0.1:9191", "localhost:9191", "LOCALHOST", "[::1]:9191", "10.0.0.3:80",
                           "tuner.example", "TUNER.example:443"}) {
    EXPECT_EQ(CodeWith("host", host), 200) << host;
  }
  for (const char* host : {"", "evil.example", "evil.example:9191", "127.0.0.1.evil.example", "localhost.evil.example",
                           "localhost, evil.example", "a.tuner.example", "[evil.example]"}) {
    EXPECT_EQ(CodeWith("host", host), 421) << host;
    EXPECT_EQ(CodeWith("host", host, "/"), 421) << host;
  }
}

TEST_F(DashboardTest, AnOpenServerAsksForNoToken) {
  Open(false);
  const Json session = Got("/api/session");
  EXPECT_TRUE(session["open"].get<bool>() && session["allowed"].get<bool>());
  for (const char* api : {"/api/status", "/api/jobs", "/api/devices", "/api/records", "/api/models", "/api/failures",
                          "/api/throughput"}) {
    EXPECT_EQ(Ask(api).code, 200) << api;
  }
  EXPECT_EQ(LogIn("x").code, 400);
}

TEST_F(DashboardTest, EveryReplyIsGuarded) {
  Open(false);
  for (const char* path : {"/", "/dashboard.css", "/dashboard.js", "/api/jobs", "/api/session"}) {
    const HttpReply reply = Ask(path);
    EXPECT_THAT(reply.headers, Contains(Pair("Content-Security-Policy", HasSubstr("default-src 'none'")))) << path;
    EXPECT_THAT(reply.headers, Contains(Pair("Cross-Origin-Resource-Policy", "same-origin"))) << path;
    for (const auto& [name, value] : reply.headers) {
      EXPECT_FALSE(absl::StartsWith(name, "Access-Control")) << path;
      EXPECT_THAT(value, Not(HasSubstr("unsafe"))) << path;
    }
  }
  // What the policy forbids is not there.
  const std::string html = Ask("/").body;
  for (const char* inline_code : {"<style", "style=", "onclick", "onload", "<script>", "http:", "https:"}) {
    EXPECT_THAT(html, Not(HasSubstr(inline_code)));
  }
  const std::string script = Ask("/dashboard.js").body;
  for (const char* markup : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_THAT(script, Not(HasSubstr(markup)));
  }
}

TEST_F(DashboardTest, NamesTravelAsJsonText) {
  Open(false);
  const int64_t id = AddJob(kMarkup);
  const HttpReply reply = Ask("/api/jobs");
  EXPECT_EQ(reply.type, "application/json");
  const Json job = Json::parse(reply.body)["jobs"][0];
  EXPECT_EQ(job["model"], kMarkup);
  EXPECT_EQ(Got("/api/job", {{"id", absl::StrCat(id)}})["model"], job["model"]);
  WorkerInfo worker{.device_key = "laptop",
                    .fingerprint = kMarkup,
                    .target = "llvm:haswell",
                    .codegen_id = "c",
                    .name = kMarkup,
                    .instance = "i",
                    .wire_version = kWireVersion};
  const auto session = core_->Register(worker);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Got("/api/devices")["devices"][0]["name"], kMarkup);
}

TEST_F(DashboardTest, JobsComeInPages) {
  Open(false);
  for (int i = 0; i < 7; ++i) AddJob(absl::StrCat("m", i), i % 2 == 0 ? "done" : "failed");
  const Json first = Got("/api/jobs", {{"limit", "5"}});
  ASSERT_EQ(first["jobs"].size(), 5u);
  EXPECT_EQ(first["jobs"][0]["model"], "m6");
  EXPECT_EQ(first["jobs"][0]["user"], "alice");
  EXPECT_EQ(first["jobs"][0]["priority"], 3);
  EXPECT_EQ(first["jobs"][0]["best_ms"], 2.5);
  const Json last = Got("/api/jobs", {{"limit", "5"}, {"before", absl::StrCat(first["next"].get<int64_t>())}});
  EXPECT_EQ(last["jobs"].size(), 2u);
  EXPECT_EQ(last["next"], 0);
  EXPECT_EQ(Got("/api/jobs", {{"state", "failed"}})["jobs"].size(), 3u);
  EXPECT_EQ(Got("/api/jobs", {{"state", "cancelled"}})["jobs"].size(), 0u);
  EXPECT_EQ(Got("/api/jobs", {{"device", "phone"}})["jobs"].size(), 0u);
}

TEST_F(DashboardTest, DevicesComeInPagesByTheirKeys) {
  Open(false);
  for (const char* key : {"b-10", "a", "b-2"}) {
    ASSERT_TRUE(core_
                    ->Register({.device_key = key,
                                .fingerprint = "f",
                                .target = "llvm:haswell",
                                .codegen_id = "c",
                                .name = "w",
                                .instance = key,
                                .wire_version = kWireVersion})
                    .ok());
  }
  const Json first = Got("/api/devices", {{"limit", "2"}});
  EXPECT_EQ(first["devices"][0]["key"], "a");
  EXPECT_EQ(first["devices"][1]["key"], "b-2") << "as people count";
  EXPECT_EQ(first["total"], 3);
  const Json last = Got("/api/devices", {{"limit", "2"}, {"offset", "2"}});
  ASSERT_EQ(last["devices"].size(), 1u);
  EXPECT_EQ(last["devices"][0]["state"], "idle");
  EXPECT_EQ(last["devices"][0]["why_not_used"], "");
  EXPECT_EQ(last["next"], 0);
  EXPECT_EQ(Got("/api/devices", {{"offset", "9"}})["devices"].size(), 0u);
}

TEST_F(DashboardTest, AJobHasItsTasksItsCurvesAndItsFailures) {
  Open(false);
  JobRow job;
  job.model = "resnet";
  job.state = "done";
  job.summary = R"({"seconds":9,"untuned_ms":8,"tuned_ms":4,"tasks":[
      {"workload":"w1","weight":2,"alternative":false,"trials":3,"untuned_ms":3,"best_ms":1,"template":"t","config":"c"},
      {"workload":"w2","weight":1,"alternative":false,"trials":1,"untuned_ms":4,"best_ms":4},
      {"workload":"w3","weight":1,"alternative":true,"trials":1,"untuned_ms":4,"best_ms":4}, 7]})";
  const int64_t id = *store_->CreateJob(job);
  std::vector<Record> trials = {Trial(id, "w1", 3e-3), Trial(id, "w2", 4e-3), Trial(id, "w1", 1e-3),
                                Trial(id, "w1", 2e-3)};
  Record failed = Trial(id, "w1", 1);
  failed.outcome = Outcome::kRunCrashed;
  failed.costs_s.clear();
  failed.error = "killed by signal 11";
  trials.push_back(failed);
  ASSERT_TRUE(store_->Append(trials).ok());
  const Json shown = Got("/api/job", {{"id", absl::StrCat(id)}});
  EXPECT_FALSE(shown["live"].get<bool>());
  EXPECT_EQ(shown["tuned_ms"], 4);
  ASSERT_EQ(shown["tasks"].size(), 3u);
  EXPECT_EQ(shown["tasks"][0]["workload"], "w2");  // the longest first
  EXPECT_NEAR(shown["tasks"][1]["share"].get<double>(), 1. / 3, 1e-9);
  // Two of the first and one of the second; each counts with its first time until there is a better one.
  const Json& curve = shown["curve"];
  ASSERT_EQ(curve.size(), 4u);
  EXPECT_NEAR(curve[0][1].get<double>(), 10, 1e-9);
  EXPECT_NEAR(curve[2][1].get<double>(), 6, 1e-9);
  EXPECT_EQ(curve[2][0], 3);
  EXPECT_EQ(curve[3][0], 5);
  EXPECT_EQ(shown["tasks"][1]["curve"].size(), 2u);
  const Json failures = Got("/api/failures", {{"job", absl::StrCat(id)}});
  EXPECT_EQ(failures["failed"], 1);
  EXPECT_EQ(failures["groups"][0]["cause"], "killed by signal N");
}

TEST_F(DashboardTest, RecordsAndModelsAreTheBest) {
  Open(false);
  const int64_t id = AddJob("resnet");
  const std::vector<Record> trials = {Trial(id, "w1", 3e-3), Trial(id, "w1", 2e-3), Trial(id, "w2", 1e-3)};
  ASSERT_TRUE(store_->Append(trials).ok());
  const Json records = Got("/api/records", {{"text", "W1"}});
  ASSERT_EQ(records["records"].size(), 1u);
  EXPECT_EQ(records["records"][0]["median_ms"], 2);
  EXPECT_EQ(records["records"][0]["job"], id);
  EXPECT_FALSE(records["records"][0]["confirmed"].get<bool>());
  const Json page = Got("/api/records", {{"limit", "1"}});
  EXPECT_EQ(page["records"][0]["workload"], "w2");
  EXPECT_EQ(Got("/api/records", {{"before", absl::StrCat(page["next"].get<int64_t>())}})["records"][0]["workload"],
            "w1");
  const Json models = Got("/api/models")["models"];
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]["best_job"], id);
}

TEST_F(DashboardTest, BadParametersAreRefusedByName) {
  Open(false);
  const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> bad = {
      {"/api/jobs", {"limit", "0"}},
      {"/api/jobs", {"limit", "201"}},
      {"/api/jobs", {"before", "-1"}},
      {"/api/jobs", {"before", "x"}},
      {"/api/jobs", {"state", "foo"}},
      {"/api/job", {"id", "0"}},
      {"/api/job", {"id", "9e9"}},
      {"/api/devices", {"offset", "-1"}},
      {"/api/records", {"limit", "1000"}},
      {"/api/failures", {"job", "0"}},
      {"/api/throughput", {"minutes", "1441"}},
      {"/api/records", {"text", std::string(257, 'x')}}};
  for (const auto& [path, query] : bad) {
    const HttpReply reply = Ask(path, {query});
    EXPECT_EQ(reply.code, 400) << path << " " << query.first;
    EXPECT_THAT(ErrorOf(reply), HasSubstr(query.first));
  }
  EXPECT_EQ(Ask("/api/jobs", {{"nothing", "1"}}).code, 400);
  EXPECT_EQ(Ask("/api/job").code, 400);
  EXPECT_EQ(Ask("/api/job", {{"id", "99"}}).code, 404);
}

}  // namespace
}  // namespace temper
