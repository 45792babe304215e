// A function is lists of buffers, variables, expressions and statements, each item after those that it refers to by
// their places in the lists. So nothing refers to itself, and nothing is read by recursion.
#include "compiler/codegen/interpreter/nest_json.h"

#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

using Json = nlohmann::json;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

constexpr int kFormat = 2;
constexpr size_t kMaxItems = 1 << 20;
constexpr int kMaxDepth = 500;  // of expressions and statements: those who walk them recurse
constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int kNone = -1;

class Writer {
 public:
  std::string Write(const ir::Func& f) {
    Json params = Json::array();
    for (const ir::Buffer& b : f.params) params.push_back(Place(b));
    const int body = Place(f.body);
    return Json{{"format", kFormat},
                {"name", f.name},
                {"params", params},
                {"num_outputs", f.num_outputs},
                {"warp_width", f.warp_width},
                {"body", body},
                {"buffers", buffers_},
                {"vars", vars_},
                {"exprs", exprs_},
                {"stmts", stmts_}}
        .dump();
  }

 private:
  template <typename Node>
  static int Add(Json& list, std::map<const Node*, int>& places, const Node* node, Json item) {
    const int place = static_cast<int>(list.size());
    list.push_back(std::move(item));
    places.emplace(node, place);
    return place;
  }

  int Place(const ir::Buffer& b) {
    if (b == nullptr) return kNone;
    if (auto it = buffer_places_.find(b.get()); it != buffer_places_.end()) return it->second;
    return Add(buffers_, buffer_places_, b.get(),
               {b->name, std::string(Name(b->dtype)), b->shape, static_cast<int>(b->scope)});
  }
  int Place(const ir::Var& v) {
    if (v == nullptr) return kNone;
    if (auto it = var_places_.find(v.get()); it != var_places_.end()) return it->second;
    return Add(vars_, var_places_, v.get(), v->name);
  }
  int Place(const Expr& e) {
    if (!e) return kNone;
    if (auto it = expr_places_.find(e.get()); it != expr_places_.end()) return it->second;
    Json args = Json::array();
    for (const Expr& arg : e->args) args.push_back(Place(arg));
    return Add(exprs_, expr_places_, e.get(),
               {static_cast<int>(e->kind), std::string(Name(e->dtype)), e->int_value,
                std::bit_cast<uint64_t>(e->float_value), e->cast_mode.saturate, static_cast<int>(e->cast_mode.rounding),
                Place(e->var), Place(e->buffer), std::move(args)});
  }
  Json Places(const std::vector<Expr>& list) {
    Json places = Json::array();
    for (const Expr& e : list) places.push_back(Place(e));
    return places;
  }
  int Place(const Stmt& s) {
    if (s == nullptr) return kNone;
    if (auto it = stmt_places_.find(s.get()); it != stmt_places_.end()) return it->second;
    Json children = Json::array();
    for (const Stmt& child : s->stmts) children.push_back(Place(child));
    const int body = Place(s->body), otherwise = Place(s->else_body);
    return Add(stmts_, stmt_places_, s.get(),
               {static_cast<int>(s->kind), Place(s->var), s->extent, static_cast<int>(s->for_kind), body, otherwise,
                Place(s->cond), std::move(children), Place(s->buffer), Places(s->indices), Place(s->value),
                s->for_store ? 1 : 0});
  }

  Json buffers_ = Json::array(), vars_ = Json::array(), exprs_ = Json::array(), stmts_ = Json::array();
  std::map<const ir::BufferNode*, int> buffer_places_;
  std::map<const ir::VarNode*, int> var_places_;
  std::map<const ir::ExprNode*, int> expr_places_;
  std::map<const ir::StmtNode*, int> stmt_places_;
};

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("nest: ", std::string(what)));
}

// How many arguments an expression has; a load has one for each dimension.
size_t NumArgs(ExprKind kind, const ir::Buffer& buffer) {
  switch (kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
    case ExprKind::kVar:
      return 0;
    case ExprKind::kLoad:
      return buffer->shape.size();
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kMod:
    case ExprKind::kMin:
    case ExprKind::kMax:
    case ExprKind::kPow:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kPair:
    case ExprKind::kDot16:
    case ExprKind::kDot8:
    case ExprKind::kBitAnd:
      return 2;
    case ExprKind::kSelect:
      return 3;
    case ExprKind::kNot:
    case ExprKind::kCast:
    case ExprKind::kExp:
    case ExprKind::kLog:
    case ExprKind::kTanh:
    case ExprKind::kErf:
    case ExprKind::kSqrt:
    case ExprKind::kAbs:
    case ExprKind::kFloor:
    case ExprKind::kCeil:
    case ExprKind::kRound:
    case ExprKind::kSin:
    case ExprKind::kCos:
    case ExprKind::kTf32:
      break;
  }
  return 1;
}

class Reader {
 public:
  absl::StatusOr<ir::Func> Read(const Json& json) {
    if (!json.is_object() || json.value("format", Json()) != kFormat)
      return Bad(absl::StrCat("the format is not ", kFormat));
    for (const char* list : {"params", "buffers", "vars", "exprs", "stmts"}) {
      const auto it = json.find(list);
      if (it == json.end() || !it->is_array() || it->size() > kMaxItems)
        return Bad(absl::StrCat("'", list, "' is no list, or too long"));
    }
    for (const Json& item : json["buffers"]) TEMPER_RETURN_IF_ERROR(ReadBuffer(item));
    for (const Json& item : json["vars"]) {
      if (!item.is_string()) return Bad("a variable's name is no text");
      vars_.push_back(ir::MakeVar(item.get<std::string>()));
    }
    for (const Json& item : json["exprs"]) TEMPER_RETURN_IF_ERROR(ReadExpr(item));
    for (const Json& item : json["stmts"]) TEMPER_RETURN_IF_ERROR(ReadStmt(item));
    ir::Func f;
    const auto name = json.find("name");
    if (name == json.end() || !name->is_string()) return Bad("the name is no text");
    f.name = name->get<std::string>();
    for (const Json& item : json["params"]) {
      const ir::Buffer buffer = At(buffers_, item);
      if (buffer == nullptr) return Bad("a parameter is no buffer");
      f.params.push_back(buffer);
    }
    f.num_outputs = static_cast<int>(Int(json.value("num_outputs", Json()), 0, static_cast<int64_t>(f.params.size())));
    f.warp_width = static_cast<int>(Int(json.value("warp_width", Json()), 1, 1024));
    f.body = At(stmts_, json.value("body", Json()));
    if (!ok_ || f.body == nullptr) return Bad("the function is not whole");
    TEMPER_RETURN_IF_ERROR(ir::Verify(f));
    return f;
  }

 private:
  // Each of these notes what is out of range, and gives something that does no harm.
  int64_t Int(const Json& item, int64_t least, int64_t most) {
    const bool fits = item.is_number_integer() && (!item.is_number_unsigned() || item.get<uint64_t>() <= INT64_MAX) &&
                      item.get<int64_t>() >= least && item.get<int64_t>() <= most;
    ok_ = ok_ && fits;
    return fits ? item.get<int64_t>() : least;
  }
  template <typename T>
  T At(const std::vector<T>& list, const Json& item) {
    const int64_t place = Int(item, kNone, static_cast<int64_t>(list.size()) - 1);
    return place == kNone ? T() : list[static_cast<size_t>(place)];
  }
  DType Type(const Json& item) {
    const absl::StatusOr<DType> dtype =
        item.is_string() ? DTypeFromName(item.get_ref<const std::string&>()) : absl::StatusOr<DType>(Bad("type"));
    ok_ = ok_ && dtype.ok();
    return dtype.value_or(DType::kF32);
  }
  bool IsList(const Json& item, size_t size) {
    ok_ = ok_ && item.is_array() && item.size() == size;
    return ok_;
  }
  int Deeper(int depth) {
    ok_ = ok_ && depth < kMaxDepth;
    return depth + 1;
  }

  absl::Status ReadBuffer(const Json& item) {
    if (!IsList(item, 4) || !item[0].is_string() || !item[2].is_array() || item[2].size() > 64)
      return Bad("a buffer is not whole");
    Shape shape;
    int64_t elements = 1;
    for (const Json& extent : item[2]) {
      shape.push_back(Int(extent, 0, kMaxExtent));
      if (__builtin_mul_overflow(elements, shape.back(), &elements) || elements > kMaxExtent)
        return Bad("a buffer is too large");
    }
    const DType dtype = Type(item[1]);
    const auto scope = static_cast<ir::Scope>(Int(item[3], 0, static_cast<int>(ir::Scope::kTile)));
    if (!ok_) return Bad("a buffer is not whole");
    buffers_.push_back(ir::MakeBuffer(item[0].get<std::string>(), dtype, shape, scope));
    return absl::OkStatus();
  }

  absl::Status ReadExpr(const Json& item) {
    if (!IsList(item, 9) || !item[3].is_number_unsigned() || !item[4].is_boolean() || !item[8].is_array())
      return Bad("an expression is not whole");
    auto node = std::make_shared<ir::ExprNode>();
    node->kind = static_cast<ExprKind>(Int(item[0], 0, static_cast<int>(ExprKind::kBitAnd)));
    node->dtype = Type(item[1]);
    node->int_value = Int(item[2], INT64_MIN, INT64_MAX);
    node->float_value = std::bit_cast<double>(item[3].get<uint64_t>());
    node->cast_mode.saturate = item[4].get<bool>();
    node->cast_mode.rounding = static_cast<Rounding>(Int(item[5], 0, static_cast<int>(Rounding::kDown)));
    node->var = At(vars_, item[6]);
    node->buffer = At(buffers_, item[7]);
    int depth = 0;
    for (const Json& arg : item[8]) {
      node->args.push_back(At(exprs_, arg));
      if (!ok_ || !node->args.back()) return Bad("an expression is not whole");
      depth = std::max(depth, expr_depths_[arg.get<size_t>()]);
    }
    const bool whole = (node->kind == ExprKind::kVar) == (node->var != nullptr) &&
                       (node->kind == ExprKind::kLoad) == (node->buffer != nullptr) &&
                       node->args.size() == NumArgs(node->kind, node->buffer);
    expr_depths_.push_back(Deeper(depth));
    if (!ok_ || !whole) return Bad("an expression is not whole");
    exprs_.emplace_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status ReadStmt(const Json& item) {
    if (!IsList(item, 12) || !item[7].is_array() || !item[9].is_array()) return Bad("a statement is not whole");
    auto s = std::make_shared<ir::StmtNode>();
    s->kind = static_cast<StmtKind>(Int(item[0], 0, static_cast<int>(StmtKind::kBarrier)));
    s->var = At(vars_, item[1]);
    s->extent = Int(item[2], 0, kMaxExtent);
    s->for_kind = static_cast<ir::ForKind>(Int(item[3], 0, static_cast<int>(ir::ForKind::kThreadZ)));
    s->body = Child(item[4]);
    s->else_body = Child(item[5]);
    s->cond = At(exprs_, item[6]);
    for (const Json& child : item[7]) {
      s->stmts.push_back(Child(child));
      if (s->stmts.back() == nullptr) return Bad("a statement is not whole");
    }
    s->buffer = At(buffers_, item[8]);
    for (const Json& index : item[9]) {
      s->indices.push_back(At(exprs_, index));
      if (!s->indices.back()) return Bad("a statement is not whole");
    }
    s->value = At(exprs_, item[10]);
    s->for_store = Int(item[11], 0, 1) == 1;
    stmt_depths_.push_back(Deeper(child_depth_));
    child_depth_ = 0;
    if (!ok_ || !IsWhole(*s)) return Bad("a statement is not whole");
    stmts_.push_back(std::move(s));
    return absl::OkStatus();
  }
  Stmt Child(const Json& item) {
    Stmt child = At(stmts_, item);
    if (child != nullptr) child_depth_ = std::max(child_depth_, stmt_depths_[item.get<size_t>()]);
    return child;
  }
  static bool IsWhole(const ir::StmtNode& s) {
    const bool indexed = s.buffer != nullptr && s.indices.size() == s.buffer->shape.size();
    switch (s.kind) {
      case StmtKind::kFor:
        return s.var != nullptr && s.body != nullptr;
      case StmtKind::kStore:
        return indexed && s.value;
      case StmtKind::kIf:
        return s.cond && s.body != nullptr;
      case StmtKind::kAlloc:
        return s.buffer != nullptr && s.body != nullptr;
      case StmtKind::kPrefetch:
        return indexed;
      case StmtKind::kSeq:
      case StmtKind::kBarrier:
        return true;
      case StmtKind::kBlock:        // of scheduled functions alone
      case StmtKind::kInstruction:  // not written either
        return false;
    }
    return false;
  }

  bool ok_ = true;
  std::vector<ir::Buffer> buffers_;
  std::vector<ir::Var> vars_;
  std::vector<Expr> exprs_;
  std::vector<Stmt> stmts_;
  std::vector<int> expr_depths_, stmt_depths_;
  int child_depth_ = 0;
};

}  // namespace

std::string NestToJson(const ir::Func& f) { return Writer().Write(f); }

absl::StatusOr<ir::Func> NestFromJson(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_discarded()) return Bad("it is not JSON");
  return Reader().Read(parsed);
}

}  // namespace temper
