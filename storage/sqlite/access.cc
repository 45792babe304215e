#include "storage/sqlite/access.h"

#include "absl/strings/str_cat.h"
#include "storage/check.h"

namespace temper {
namespace {

// All rows of a query without parameters, each as `read` makes it.
template <typename Row>
absl::StatusOr<std::vector<Row>> All(Database& database, std::string_view sql, Row (*read)(const Query&)) {
  return database.Get<std::vector<Row>>([&](Connection& db) -> absl::StatusOr<std::vector<Row>> {
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare(sql));
    std::vector<Row> rows;
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return rows;
      rows.push_back(read(query));
    }
  });
}

}  // namespace

absl::Status SqliteAccess::PutToken(const TokenRow& token) {
  TEMPER_RETURN_IF_ERROR(CheckToken(token));
  return database_.Write(1, [&](Connection& db) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db.Prepare("INSERT OR REPLACE INTO token (id, hash, owner, scopes, keys, created_unix_ms, "
                                       "expires_unix_ms, revoked) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
    query.Bind(token.id).Bind(token.hash).Bind(token.owner).Bind(token.scopes).Bind(token.keys);
    query.Bind(token.created_unix_ms).Bind(token.expires_unix_ms).Bind(int64_t{token.revoked});
    return query.Run();
  });
}

absl::Status SqliteAccess::SpendToken(const std::string& id) {
  return database_.Write(1, [&](Connection& db) -> absl::Status {
    {
      TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("UPDATE token SET revoked = 1 WHERE id = ? AND revoked = 0"));
      query.Bind(id);
      TEMPER_RETURN_IF_ERROR(query.Run());
      if (db.Changed()) return absl::OkStatus();
    }
    TEMPER_ASSIGN_OR_RETURN(Query query, db.Prepare("SELECT 1 FROM token WHERE id = ?"));
    query.Bind(id);
    TEMPER_ASSIGN_OR_RETURN(const bool known, query.Step());
    if (!known) return absl::NotFoundError(absl::StrCat("no token ", id));
    return absl::FailedPreconditionError(absl::StrCat("token ", id, " was used or revoked"));
  });
}

absl::StatusOr<std::vector<TokenRow>> SqliteAccess::Tokens() {
  return All<TokenRow>(
      database_,
      "SELECT id, hash, owner, scopes, keys, created_unix_ms, expires_unix_ms, revoked FROM token ORDER BY id",
      [](const Query& row) {
        return TokenRow{row.Text(0), row.Text(1), row.Text(2), row.Text(3),
                        row.Text(4), row.Int(5),  row.Int(6),  row.Int(7) != 0};
      });
}

absl::Status SqliteAccess::PutCertificate(const CertificateRow& certificate) {
  TEMPER_RETURN_IF_ERROR(CheckCertificate(certificate));
  return database_.Write(1, [&](Connection& db) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db.Prepare("INSERT OR REPLACE INTO certificate (serial, keys, created_unix_ms, "
                                       "expires_unix_ms, revoked) VALUES (?, ?, ?, ?, ?)"));
    query.Bind(certificate.serial).Bind(certificate.keys).Bind(certificate.created_unix_ms);
    query.Bind(certificate.expires_unix_ms).Bind(int64_t{certificate.revoked});
    return query.Run();
  });
}

absl::StatusOr<std::vector<CertificateRow>> SqliteAccess::Certificates() {
  return All<CertificateRow>(
      database_, "SELECT serial, keys, created_unix_ms, expires_unix_ms, revoked FROM certificate ORDER BY serial",
      [](const Query& row) {
        return CertificateRow{row.Text(0), row.Text(1), row.Int(2), row.Int(3), row.Int(4) != 0};
      });
}

absl::Status SqliteAccess::PutDevice(const DeviceRow& device) {
  TEMPER_RETURN_IF_ERROR(CheckDevice(device));
  return database_.Write(1, [&](Connection& db) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db.Prepare("INSERT OR REPLACE INTO approval (key, fingerprint, state, updated_unix_ms) "
                                       "VALUES (?, ?, ?, ?)"));
    query.Bind(device.key).Bind(device.fingerprint).Bind(device.state).Bind(device.updated_unix_ms);
    return query.Run();
  });
}

absl::StatusOr<std::vector<DeviceRow>> SqliteAccess::Devices() {
  return All<DeviceRow>(database_,
                        "SELECT key, fingerprint, state, updated_unix_ms FROM approval ORDER BY key, fingerprint",
                        [](const Query& row) {
                          return DeviceRow{row.Text(0), row.Text(1), row.Text(2), row.Int(3)};
                        });
}

absl::Status SqliteAccess::AppendAudit(const AuditRow& given) {
  const AuditRow row = KeptAudit(given);
  return database_.Write(1, [&](Connection& db) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db.Prepare("INSERT INTO audit (time_unix_ms, principal, call, subject, verdict, detail) "
                                       "VALUES (?, ?, ?, ?, ?, ?)"));
    query.Bind(row.time_unix_ms).Bind(row.principal).Bind(row.call).Bind(row.subject).Bind(row.verdict);
    return query.Bind(row.detail).Run();
  });
}

absl::StatusOr<std::vector<AuditRow>> SqliteAccess::Audit(int64_t before, int64_t limit) {
  return database_.Get<std::vector<AuditRow>>([&](Connection& db) -> absl::StatusOr<std::vector<AuditRow>> {
    TEMPER_ASSIGN_OR_RETURN(Query query,
                            db.Prepare("SELECT id, time_unix_ms, principal, call, subject, verdict, detail FROM audit "
                                       "WHERE id < ? ORDER BY id DESC LIMIT ?"));
    query.Bind(before > 0 ? before : INT64_MAX).Bind(limit);
    std::vector<AuditRow> rows;
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return rows;
      rows.push_back(
          {query.Int(0), query.Int(1), query.Text(2), query.Text(3), query.Text(4), query.Text(5), query.Text(6)});
    }
  });
}

}  // namespace temper
