#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/report/words.h"
#include "storage/check.h"

namespace temper {
namespace {

struct DbOptions {
  RecordOptions records;
  RecordFilter filter;
  std::string outcome;
  std::vector<std::string> files;
  std::string snapshot;
  PruneOptions prune;
  int audit_days = 0;
  bool json = false, trusted = false;
};

void Print(const Record& r, bool json) {
  if (json) {
    std::printf("%s\n", ToJsonLine(r).c_str());
    return;
  }
  const std::string cost = r.ok() ? absl::StrCat(MedianCost(r) * 1e3, " ms") : std::string(Text(r.outcome));
  std::printf("%lld  %-14s %-10s %-8s %s  %s\n    %s\n", static_cast<long long>(r.id), cost.c_str(),
              Escaped(r.device_key).c_str(), r.purpose.c_str(), Escaped(r.template_name).c_str(),
              Escaped(r.config).c_str(), Escaped(r.workload).c_str());
  if (!r.error.empty()) std::printf("    %s\n", Escaped(r.error).c_str());
}

absl::StatusOr<std::unique_ptr<Store>> OpenForReading(const DbOptions& o) {
  return OpenStore(DatabasePath(o.records), OpenMode::kReadOnly);
}

absl::StatusOr<RecordFilter> FilterOf(const DbOptions& o) {
  RecordFilter filter = o.filter;
  if (o.outcome.empty()) return filter;
  filter.outcome = ParseOutcome(o.outcome);
  if (filter.outcome.has_value()) return filter;
  std::string names;
  for (const Outcome outcome : AllOutcomes())
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(Text(outcome)));
  return absl::InvalidArgumentError(absl::StrCat("no outcome '", o.outcome, "'; there are: ", names));
}

// Those that the filter matches, all or the best, from the server or from the file. `visit` returns whether it wants
// more; a file is read to its end.
absl::Status Visit(const DbOptions& o, bool best, const std::function<bool(const Record&)>& visit) {
  TEMPER_ASSIGN_OR_RETURN(const RecordFilter filter, FilterOf(o));
  if (!o.records.server.empty()) {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.records));
    return client->ExportRecords(filter, best, visit);
  }
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenForReading(o));
  const auto each = [&](const Record& r) { visit(r); };
  return best ? store->ScanBest(filter, each) : store->Scan(filter, each);
}

absl::Status Show(const DbOptions& o, bool best) {
  return Visit(o, best, [&](const Record& r) {
    Print(r, o.json);
    return true;
  });
}

absl::Status Best(const DbOptions& o) { return Show(o, true); }
absl::Status List(const DbOptions& o) { return Show(o, false); }

absl::Status Snapshot(const DbOptions& o) {
  if (!o.files.empty()) return absl::InvalidArgumentError("give a FILE.jsonl or --snapshot FILE.db, not both");
  if (!o.records.server.empty())
    return absl::InvalidArgumentError("a snapshot is made from the file: give --db, on the server's machine");
  return SnapshotStore(DatabasePath(o.records), o.snapshot);
}

absl::Status Export(const DbOptions& o) {
  if (!o.snapshot.empty()) return Snapshot(o);
  std::ofstream file;
  std::ostream& out = o.files.empty() ? std::cout : file;
  // Opened with the first record: a database that cannot be read leaves an earlier export alone.
  std::error_code ignored;
  const bool replaces = !o.files.empty() && std::filesystem::exists(o.files[0], ignored);
  int64_t count = 0;
  auto begin = [&] {
    if (!o.files.empty() && !file.is_open()) file.open(o.files[0]);
  };
  const absl::Status read = Visit(o, false, [&](const Record& r) {
    begin();
    out << ToJsonLine(r) << '\n';
    ++count;
    return out.good();
  });
  if (!read.ok() && out.good()) return read;
  begin();
  out.flush();
  if (!out) {
    return absl::UnavailableError(absl::StrCat("cannot write ", o.files.empty() ? "standard output" : o.files[0],
                                               ": is the disk full, or may it not be written?"));
  }
  if (!o.files.empty()) {
    std::printf("%s: %s%s\n", o.files[0].c_str(), Counted(count, "record").c_str(),
                replaces ? ", in the place of what it held" : "");
  }
  return absl::OkStatus();
}

// Imports through the server that holds the database, or into the file itself.
absl::Status Put(const DbOptions& o, const std::vector<Record>& records) {
  std::vector<int64_t> ids;
  if (o.trusted && o.records.server.empty())
    return absl::InvalidArgumentError("--trusted is an admin's word to a server: give --server too");
  if (!o.records.server.empty()) {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.records));
    TEMPER_ASSIGN_OR_RETURN(ids, client->PutRecords(records, o.trusted));
  } else {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenStore(DatabasePath(o.records)));
    TEMPER_ASSIGN_OR_RETURN(ids, store->Import(records));
  }
  const auto known = std::count(ids.begin(), ids.end(), 0);
  if (o.json) {
    const nlohmann::ordered_json said = {{"added", ids.size() - known}, {"known", known}};
    std::printf("%s\n", JsonText(said).c_str());
    return absl::OkStatus();
  }
  std::printf("%s added", Counted(std::ssize(ids) - known, "record").c_str());
  if (known > 0) std::printf(", %td were there already", known);
  std::printf("\n");
  return absl::OkStatus();
}

// The next line, in `room`. Of one that is longer it is as much as fits: what has no end of a line may have none at
// all.
std::optional<std::string_view> ReadLine(std::istream& in, std::string& room) {
  in.getline(room.data(), std::ssize(room));
  if (in.bad() || in.gcount() == 0) return std::nullopt;
  return std::string_view(room.data(), in.gcount() - (in.good() ? 1 : 0));  // its end is counted too
}

// Every line is read before the first is kept: a damaged file adds nothing.
absl::Status Import(const DbOptions& o) {
  std::vector<Record> records;
  std::string room(kMaxJsonLineBytes + 2, '\0');
  for (const std::string& path : o.files) {
    std::ifstream in(path);
    if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
    int number = 0;
    while (const std::optional<std::string_view> line = ReadLine(in, room)) {
      ++number;
      if (line->empty()) continue;
      absl::StatusOr<Record> record = RecordFromJsonLine(*line);
      const absl::Status sound = record.ok() ? CheckRecord(*record) : record.status();
      if (!sound.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", sound.message()));
      records.push_back(*std::move(record));
    }
    if (in.bad())
      return absl::UnavailableError(absl::StrCat("cannot read ", path, ": is it a folder, or is its disk broken?"));
  }
  return Put(o, records);
}

// As an import: a damaged database adds nothing.
absl::Status Merge(const DbOptions& o) {
  std::vector<Record> records;
  for (const std::string& path : o.files) {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenStore(path, OpenMode::kReadOnly));
    absl::Status sound;
    TEMPER_RETURN_IF_ERROR(store->Scan({}, [&](const Record& r) {
      const absl::Status checked = CheckRecord(r);
      if (!checked.ok())
        sound.Update(absl::InvalidArgumentError(absl::StrCat(path, ": record ", r.id, ": ", checked.message())));
      records.push_back(r);
    }));
    TEMPER_RETURN_IF_ERROR(sound);
  }
  return Put(o, records);
}

absl::Status Restore(const DbOptions& o) {
  const std::string path = DatabasePath(o.records);
  TEMPER_ASSIGN_OR_RETURN(const std::string kept, RestoreStore(o.snapshot, path));
  std::printf("%s is what %s held%s\n", path.c_str(), o.snapshot.c_str(),
              kept.empty() ? "" : absl::StrCat("; what was there before is ", kept).c_str());
  return absl::OkStatus();
}

absl::Status Prune(const DbOptions& o) {
  PruneOptions options = o.prune;
  if (o.audit_days > 0) options.audit_before_unix_ms = absl::ToUnixMillis(absl::Now() - o.audit_days * absl::Hours(24));
  if (options.keep_records == 0 && options.keep_jobs == 0 && options.audit_before_unix_ms == 0)
    return absl::InvalidArgumentError("say what to keep: --keep-records, --keep-jobs or --audit-days");
  // One that is not there is not made; one of an earlier release is brought up to date.
  if (const absl::Status there = OpenForReading(o).status(); absl::IsNotFound(there)) return there;
  const OpenMode mode = options.dry_run ? OpenMode::kReadOnly : OpenMode::kReadWrite;
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenStore(DatabasePath(o.records), mode));
  TEMPER_ASSIGN_OR_RETURN(const Pruned pruned, store->Prune(options));
  std::printf("%s %lld records, %lld jobs, %lld lines of the audit\n", options.dry_run ? "would remove" : "removed",
              static_cast<long long>(pruned.records), static_cast<long long>(pruned.jobs),
              static_cast<long long>(pruned.audit));
  return absl::OkStatus();
}

}  // namespace

void AddDb(CLI::App& app, Action* action) {
  auto o = std::make_shared<DbOptions>();
  CLI::App* db = app.add_subcommand("db", "look at records, move them between databases");
  db->require_subcommand(1);
  db->footer("Example:\n  temper db export records.jsonl && temper db import records.jsonl --server tuner:9190");
  auto add = [&](const char* name, const char* help, const char* example, absl::Status (*run)(const DbOptions&)) {
    CLI::App* command = db->add_subcommand(name, help);
    command->add_option("--db", o->records.db, "database of records (default: TEMPER_DB, else the user's own)");
    command->footer(absl::StrCat("Example:\n  temper db ", example));
    command->callback([o, action, run] { *action = [o, run] { return run(*o); }; });
    return command;
  };
  CLI::App* best = add("best", "the fastest known config of each workload", "best --json", Best);
  CLI::App* list = add("list", "all records, failures included", "list --outcome build_failed", List);
  for (CLI::App* command : {best, list}) {
    command->add_flag("--json", o->json, "one JSON object a line");
    command->add_option("--device", o->filter.device_key, "only records of this device key");
    command->add_option("--outcome", o->outcome, "only records of this outcome");
    command->add_option("--workload", o->filter.workload, "only records of this workload (its text)");
  }
  CLI::App* imports = add("import", "add records from JSON lines", "import records.jsonl", Import);
  imports->add_option("files", o->files, "FILE.jsonl ...")->required();
  CLI::App* merge = add("merge", "add the records of other databases", "merge other.db --db mine.db", Merge);
  merge->add_option("files", o->files, "FILE.db ...")->required();
  for (CLI::App* command : {imports, merge}) {
    command->add_flag("--json", o->json, "say how many records were added as a JSON object");
    command->add_flag("--trusted", o->trusted,
                      "as an admin: they were measured, and may outrank what the server has measured itself");
  }
  CLI::App* exports = add("export", "write all records as JSON lines", "export records.jsonl", Export);
  exports->add_option("file", o->files, "FILE.jsonl (default: standard output)")->expected(1);
  exports->add_option("--snapshot", o->snapshot, "write a copy of the database to FILE.db instead");
  CLI::App* restore =
      add("restore", "put a snapshot in the place of a database", "restore copy.db --db mine.db", Restore);
  restore->add_option("snapshot", o->snapshot, "FILE.db that --snapshot or a server wrote")->required();
  CLI::App* prune = add("prune", "remove what no build and no job needs any more", "prune --keep-records 500", Prune);
  prune
      ->add_option("--keep-records", o->prune.keep_records,
                   "keep this many of the newest records of each workload and target (default: all)")
      ->check(CLI::PositiveNumber);
  prune->add_option("--keep-jobs", o->prune.keep_jobs, "keep this many of the newest jobs (default: all)")
      ->check(CLI::PositiveNumber);
  prune->add_option("--audit-days", o->audit_days, "keep this many days of the audit (default: all)")
      ->check(CLI::PositiveNumber);
  prune->add_flag("--dry-run", o->prune.dry_run, "only say how much would be removed");
  for (CLI::App* command : {best, list, imports, merge, exports}) {
    command
        ->add_option("--server", o->records.server,
                     "through the server that holds the database (default, without --db: TEMPER_SERVER)")
        ->excludes("--db");
    AddCredentialOptions(command, &o->records);
    command->parse_complete_callback([o] { UseEnvironment(&o->records); });
  }
}

}  // namespace temper
