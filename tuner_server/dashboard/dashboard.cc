#include "tuner_server/dashboard/dashboard.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/check.h"
#include "tuner_server/dashboard/page.h"
#include "tuner_server/dashboard/views.h"

namespace temper {
namespace {

constexpr char kCookie[] = "temper_login";
constexpr char kJson[] = "application/json";
constexpr int64_t kDefaultPage = 50, kMostAPage = 200;
constexpr int64_t kFailureRecords = 5'000, kFailureRows = kFailureRecords, kMostModels = 200;
constexpr size_t kMostParameterBytes = 256;

// The page runs its own script and style, asks its own server, and nobody frames it.
const std::vector<std::pair<std::string, std::string>>& Guards() {
  static const std::vector<std::pair<std::string, std::string>> kGuards = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
       "form-action 'self'; frame-ancestors 'none'"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"}};
  return kGuards;
}

HttpReply Guarded(int code, const char* type, std::string body) { return {code, type, std::move(body), Guards()}; }

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

HttpReply Refusal(const absl::Status& why) {
  int code = 503;
  if (absl::IsInvalidArgument(why)) code = 400;
  if (absl::IsUnauthenticated(why)) code = 401;
  if (absl::IsPermissionDenied(why)) code = 403;
  if (absl::IsNotFound(why)) code = 404;
  if (absl::IsFailedPrecondition(why)) code = 421;
  return Guarded(code, kJson, Dump({{"error", why.message()}}));
}

// An address in digits can not be made to mean another machine, as a name can.
bool IsDigits(std::string_view host) {
  const bool v6 = host.starts_with('[') && host.ends_with(']');
  if (v6) host = host.substr(1, host.size() - 2);
  return !host.empty() && host.find_first_not_of(v6 ? "0123456789abcdef:." : "0123456789.") == std::string_view::npos;
}

// Without its port.
std::string HostOf(const std::string& header) {
  const size_t close = header.find(']'), colon = header.find(':', close == std::string::npos ? 0 : close);
  return absl::AsciiStrToLower(header.substr(0, colon));
}

std::string CookieOf(const HttpRequest& request) {
  for (const absl::string_view part : absl::StrSplit(request.Header("cookie"), absl::ByAnyChar(";,"))) {
    const std::pair<absl::string_view, absl::string_view> named = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (absl::StripAsciiWhitespace(named.first) == kCookie) return std::string(named.second);
  }
  return "";
}

// "" where it is not there.
std::string BearerOf(const HttpRequest& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string& header = request.Header("authorization");
  return header.starts_with(kScheme) ? header.substr(kScheme.size()) : header;
}

std::string SetCookie(const HttpRequest& request, const std::string& value, absl::Duration lifetime) {
  // A proxy in front of this server ends the encryption, and says so.
  const bool encrypted = request.Header("x-forwarded-proto") == "https";
  return absl::StrCat(kCookie, "=", value,
                      "; Path=/; HttpOnly; SameSite=Strict; Max-Age=", absl::ToInt64Seconds(lifetime),
                      encrypted ? "; Secure" : "");
}

// What a request asks for. The first thing that is wrong with it is kept.
class Parameters {
 public:
  Parameters(const HttpRequest& request, std::set<std::string> known) : request_(request) {
    for (const auto& [name, value] : request.query) {
      if (!known.contains(name)) Refuse("there is no such parameter; there are:", known);
      if (value.size() > kMostParameterBytes) Refuse(absl::StrCat("'", name, "' is too long"), {});
    }
  }

  std::string Text(const std::string& name) const { return request_.Query(name); }
  // Or nothing.
  std::string JobState(const std::string& name) {
    const std::string text = request_.Query(name);
    if (!text.empty()) status_.Update(CheckJobState(text));
    return text;
  }
  // From `least` to `most`.
  int64_t Number(const std::string& name, int64_t otherwise, int64_t least, int64_t most) {
    const std::string text = request_.Query(name);
    int64_t number = otherwise;
    if (!text.empty() && (!absl::SimpleAtoi(text, &number) || number < least || number > most)) {
      Refuse(absl::StrCat("'", name, "' takes a number from ", least, " to ", most), {});
    }
    return number;
  }
  const absl::Status& status() const { return status_; }

 private:
  void Refuse(std::string why, const std::set<std::string>& names) {
    for (const std::string& name : names) absl::StrAppend(&why, " ", name);
    status_.Update(absl::InvalidArgumentError(why));
  }

  const HttpRequest& request_;
  absl::Status status_;
};

}  // namespace

bool IsHostName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  });
}

Dashboard::Dashboard(ServerCore& core, Gate& gate, DashboardOptions options)
    : core_(core), gate_(gate), options_(std::move(options)), logins_(gate, core.clock()) {}

std::vector<HttpRoute> Dashboard::Routes() {
  const auto file = [this](const char* path, std::string_view text, const char* type) {
    return HttpRoute{path, [=, this](const HttpRequest& request) { return Show(request, text, type); }};
  };
  const auto slow = [](const char* path, auto reply, const char* method = "GET") {
    return HttpRoute{.path = path, .reply = reply, .method = method, .slow = true};
  };
  const auto json = [&](const char* path, Call call, View view) {
    return slow(path, [=, this](const HttpRequest& request) { return Answer(request, call, view); });
  };
  return {
      file("/", kPageHtml, "text/html; charset=utf-8"),
      file("/dashboard.css", kPageCss, "text/css; charset=utf-8"),
      file("/dashboard.js", kPageJs, "text/javascript; charset=utf-8"),
      slow("/api/session", [this](const HttpRequest& request) { return TellSession(request); }),
      json("/api/status", Call::kListJobs, &Dashboard::Status),
      json("/api/jobs", Call::kListJobs, &Dashboard::Jobs),
      json("/api/job", Call::kWatchJob, &Dashboard::Job),
      json("/api/devices", Call::kListDevices, &Dashboard::Devices),
      json("/api/records", Call::kExportRecords, &Dashboard::Records),
      json("/api/models", Call::kListJobs, &Dashboard::Models),
      json("/api/failures", Call::kExportRecords, &Dashboard::Failures),
      json("/api/throughput", Call::kListJobs, &Dashboard::Progress),
      slow(
          "/login", [this](const HttpRequest& request) { return LogIn(request); }, "POST"),
      slow(
          "/logout", [this](const HttpRequest& request) { return LogOut(request); }, "POST"),
  };
}

HttpReply Dashboard::Show(const HttpRequest& request, std::string_view file, const char* type) const {
  if (const absl::Status host = CheckHost(request); !host.ok()) return Refusal(host);
  return Guarded(200, type, std::string(file));
}

HttpReply Dashboard::Answer(const HttpRequest& request, Call call, View view) {
  absl::Status allowed = CheckHost(request);
  allowed.Update(CheckOrigin(request));
  if (allowed.ok()) allowed = Admit(request, call).status();
  if (!allowed.ok()) return Refusal(allowed);
  absl::StatusOr<std::string> text = (this->*view)(request);
  if (text.ok()) return Guarded(200, kJson, *std::move(text));
  // Whatever else the store says is its own trouble, not the caller's.
  const bool asked_wrong = absl::IsInvalidArgument(text.status()) || absl::IsNotFound(text.status());
  return Refusal(asked_wrong ? text.status() : absl::UnavailableError(text.status().message()));
}

HttpReply Dashboard::TellSession(const HttpRequest& request) {
  absl::Status allowed = CheckHost(request);
  allowed.Update(CheckOrigin(request));
  if (!allowed.ok()) return Refusal(allowed);
  const absl::StatusOr<Principal> caller = Admit(request, Call::kListJobs);
  if (!caller.ok() && !absl::IsUnauthenticated(caller.status())) return Refusal(caller.status());
  return Guarded(
      200, kJson,
      Dump({{"open", !gate_.initialised()}, {"allowed", caller.ok()}, {"user", caller.ok() ? caller->owner : ""}}));
}

HttpReply Dashboard::LogIn(const HttpRequest& request) {
  absl::Status allowed = CheckHost(request);
  allowed.Update(CheckOrigin(request));
  if (!allowed.ok()) return Refusal(allowed);
  if (!gate_.initialised()) return Refusal(absl::InvalidArgumentError("this server is open and asks for no token"));
  const auto form = ParseHttpForm(request.body);
  if (!form.has_value() || !form->contains("token") || form->at("token").empty()) {
    return Refusal(absl::InvalidArgumentError("a login is a form with a field named token"));
  }
  absl::StatusOr<Principal> caller =
      AskGate({.bearer = form->at("token"), .private_wire = request.local}, Call::kListJobs);
  if (!caller.ok()) return Refusal(caller.status());
  HttpReply reply = Guarded(204, kJson, "");
  reply.headers.emplace_back("Set-Cookie", SetCookie(request, logins_.Begin(*std::move(caller)), Logins::kLifetime));
  return reply;
}

HttpReply Dashboard::LogOut(const HttpRequest& request) {
  absl::Status allowed = CheckHost(request);
  allowed.Update(CheckOrigin(request));
  if (!allowed.ok()) return Refusal(allowed);
  logins_.End(CookieOf(request));
  HttpReply reply = Guarded(204, kJson, "");
  reply.headers.emplace_back("Set-Cookie", SetCookie(request, "", absl::ZeroDuration()));
  return reply;
}

absl::Status Dashboard::CheckHost(const HttpRequest& request) const {
  const std::string host = HostOf(request.Header("host"));
  const bool known = host == "localhost" || IsDigits(host) ||
                     std::any_of(options_.hosts.begin(), options_.hosts.end(),
                                 [&](const std::string& name) { return absl::EqualsIgnoreCase(name, host); });
  if (known) return absl::OkStatus();
  return absl::FailedPreconditionError("this server is not known by that name; --http-host NAME makes it known");
}

absl::Status Dashboard::CheckOrigin(const HttpRequest& request) const {
  const std::string &origin = request.Header("origin"), &site = request.Header("sec-fetch-site");
  const std::string& host = request.Header("host");
  const bool own_origin =
      origin.empty() || origin == absl::StrCat("http://", host) || origin == absl::StrCat("https://", host);
  if (own_origin && (site.empty() || site == "same-origin" || site == "none")) return absl::OkStatus();
  return absl::PermissionDeniedError("the page of another server asks for this");
}

absl::StatusOr<Principal> Dashboard::Admit(const HttpRequest& request, Call call) {
  if (!request.local) {
    return absl::PermissionDeniedError(
        "the dashboard is told to this machine alone, for its wire is not encrypted; come by a tunnel or a proxy");
  }
  const std::string bearer = BearerOf(request), cookie = CookieOf(request);
  if (bearer.empty() && !cookie.empty()) {
    std::optional<Principal> known = logins_.Find(cookie);
    if (known.has_value()) {
      TEMPER_RETURN_IF_ERROR(Allowed(*known, call, {}));
      return *std::move(known);
    }
  }
  // Who shows nothing is nobody to write down: every visit begins so.
  if (gate_.initialised() && bearer.empty()) return absl::UnauthenticatedError("log in with a token");
  return AskGate({.bearer = bearer, .private_wire = true}, call);
}

absl::StatusOr<Principal> Dashboard::AskGate(const Credentials& credentials, Call call) {
  absl::StatusOr<Principal> caller = gate_.Admit(credentials, call, {.text = "dashboard"});
  if (absl::IsUnauthenticated(caller.status())) core_.metrics().Add(Metric::kDeniedCalls, "unauthenticated");
  if (absl::IsPermissionDenied(caller.status())) core_.metrics().Add(Metric::kDeniedCalls, "forbidden");
  return caller;
}

absl::StatusOr<std::string> Dashboard::Status(const HttpRequest& request) {
  TEMPER_RETURN_IF_ERROR(Parameters(request, {}).status());
  const FleetStatus status = core_.Status();
  Json keys = Json::array();
  for (const auto& [key, load] : status.keys) {
    if (keys.size() == kMostAPage) break;
    keys.push_back({{"device", key}, {"pending", load.pending}, {"leased", load.leased}, {"jobs", load.jobs}});
  }
  return Dump({{"open", !gate_.initialised()},
               {"devices", status.workers},
               {"jobs", status.jobs},
               {"leases", status.leases},
               {"failures_since_start", status.failures},
               {"store_ok", status.store_ok},
               {"queues", keys}});
}

absl::StatusOr<std::string> Dashboard::Jobs(const HttpRequest& request) {
  Parameters given(request, {"before", "limit", "state", "device"});
  const JobFilter filter{.before_id = given.Number("before", 0, 1, INT64_MAX),
                         .limit = given.Number("limit", kDefaultPage, 1, kMostAPage),
                         .state = given.JobState("state"),
                         .device_key = given.Text("device")};
  TEMPER_RETURN_IF_ERROR(given.status());
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> rows, core_.Jobs(filter));
  Json jobs = Json::array();
  for (const JobRow& row : rows) {
    Json& job = jobs.emplace_back(JobJson(row));
    if (IsFinalJobState(row.state)) continue;
    if (const std::shared_ptr<JobFeed> feed = core_.FindJob(row.id)) job["curve"] = CurveJson(feed->Curve());
  }
  const bool more = static_cast<int64_t>(rows.size()) == filter.limit;
  return Dump({{"jobs", jobs}, {"next", more ? rows.back().id : 0}});
}

absl::StatusOr<std::string> Dashboard::Job(const HttpRequest& request) {
  Parameters given(request, {"id"});
  const int64_t id = given.Number("id", 0, 1, INT64_MAX);
  TEMPER_RETURN_IF_ERROR(given.status());
  if (id == 0) return absl::InvalidArgumentError("'id' is missing");
  JobRow row;
  std::optional<JobNews> news;
  if (const std::shared_ptr<JobFeed> feed = core_.FindJob(id); feed != nullptr && !feed->over()) {
    row = feed->row();  // the store's has the whole request, which may be large
    news = feed->Since(0);
  } else {
    TEMPER_ASSIGN_OR_RETURN(row, core_.store().GetJob(id));
  }
  TEMPER_ASSIGN_OR_RETURN(const JobCurve curve, core_.store().overview().Curve(id));
  return Dump(JobDetailJson(row, news, curve));
}

absl::StatusOr<std::string> Dashboard::Devices(const HttpRequest& request) {
  Parameters given(request, {"offset", "limit"});
  const int64_t offset = given.Number("offset", 0, 0, INT32_MAX);
  const int64_t limit = given.Number("limit", kDefaultPage, 1, kMostAPage);
  TEMPER_RETURN_IF_ERROR(given.status());
  const Dispatcher::SessionList list = core_.Sessions(static_cast<size_t>(offset), static_cast<size_t>(limit));
  const absl::Duration now = core_.clock().Monotonic();
  Json devices = Json::array();
  for (const Dispatcher::SessionView& view : list.views) devices.push_back(DeviceJson(view, now));
  const bool more = offset + limit < static_cast<int64_t>(list.total);
  return Dump(
      {{"devices", devices}, {"total", list.total}, {"most_drift", kMostDrift}, {"next", more ? offset + limit : 0}});
}

absl::StatusOr<std::string> Dashboard::Records(const HttpRequest& request) {
  Parameters given(request, {"before", "limit", "text", "device"});
  const BestFilter filter{.text = given.Text("text"),
                          .device_key = given.Text("device"),
                          .before = given.Number("before", 0, 1, INT64_MAX),
                          .limit = given.Number("limit", kDefaultPage, 1, kMostAPage)};
  TEMPER_RETURN_IF_ERROR(given.status());
  TEMPER_ASSIGN_OR_RETURN(const BestPage page, core_.store().overview().Bests(filter));
  Json records = Json::array();
  for (const BestRow& row : page.rows) records.push_back(BestJson(row));
  return Dump({{"records", records}, {"next", page.next}});
}

absl::StatusOr<std::string> Dashboard::Models(const HttpRequest& request) {
  TEMPER_RETURN_IF_ERROR(Parameters(request, {}).status());
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ModelRow> rows, core_.store().overview().Models(kMostModels));
  Json models = Json::array();
  for (const ModelRow& row : rows) models.push_back(ModelJson(row));
  return Dump({{"models", models}});
}

absl::StatusOr<std::string> Dashboard::Failures(const HttpRequest& request) {
  Parameters given(request, {"job"});
  const int64_t job = given.Number("job", 0, 1, INT64_MAX);
  TEMPER_RETURN_IF_ERROR(given.status());
  TEMPER_ASSIGN_OR_RETURN(const FailureRows rows,
                          core_.store().overview().Failures(job, kFailureRecords, kFailureRows));
  return Dump(FailuresJson(rows));
}

absl::StatusOr<std::string> Dashboard::Progress(const HttpRequest& request) {
  Parameters given(request, {"minutes"});
  const int64_t minutes = given.Number("minutes", 60, 1, Throughput::kMinutes);
  TEMPER_RETURN_IF_ERROR(given.status());
  const absl::Time now = core_.clock().Wall();
  Json list = Json::array();
  for (const Throughput::Minute& minute : core_.throughput().Latest(now, minutes)) {
    list.push_back({minute.start_unix_s, minute.measured, minute.failed});
  }
  return Dump({{"now_unix_s", absl::ToUnixSeconds(now)}, {"minutes", list}});
}

}  // namespace temper
