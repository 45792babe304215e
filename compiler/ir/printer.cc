#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "compiler/ir/stmt.h"

namespace temper::ir {
namespace {

// Gives variables and buffers names that are distinct within one text: the second of a name becomes NAME_1.
class NameTable {
 public:
  std::string Of(const void* identity, const std::string& wish) {
    auto [it, is_new] = names_.try_emplace(identity);
    if (is_new) {
      std::string name = wish;
      for (int n = 1; !taken_.insert(name).second; ++n) name = absl::StrCat(wish, "_", n);
      it->second = std::move(name);
    }
    return it->second;
  }
  // Names given from here on are free again at Leave, as a block's iterators are at its end.
  void Forget(const void* identity) {
    auto it = names_.find(identity);
    if (it == names_.end()) return;
    taken_.erase(it->second);
    names_.erase(it);
  }

 private:
  std::unordered_map<const void*, std::string> names_;
  std::unordered_set<std::string> taken_;
};

enum Precedence { kLowest, kOrLevel, kAndLevel, kCompareLevel, kSumLevel, kProductLevel, kAtomLevel };

struct Operator {
  ExprKind kind;
  Precedence level;
  const char* text;
};
constexpr Operator kOperators[] = {
    {ExprKind::kOr, kOrLevel, " || "},      {ExprKind::kAnd, kAndLevel, " && "},
    {ExprKind::kLt, kCompareLevel, " < "},  {ExprKind::kLe, kCompareLevel, " <= "},
    {ExprKind::kEq, kCompareLevel, " == "}, {ExprKind::kAdd, kSumLevel, " + "},
    {ExprKind::kSub, kSumLevel, " - "},     {ExprKind::kMul, kProductLevel, "*"},
    {ExprKind::kDiv, kProductLevel, "/"},   {ExprKind::kMod, kProductLevel, "%"},
};
const Operator* FindOperator(ExprKind kind) {
  for (const Operator& op : kOperators) {
    if (op.kind == kind) return &op;
  }
  return nullptr;
}

// Nodes of one line. A graph whose nodes are shared again and again has a text that nobody could hold.
constexpr int kMostPrinted = 1 << 14;

const char* ScopeText(Scope scope) {
  switch (scope) {
    case Scope::kMemory:
      return "";
    case Scope::kRegister:
      return " register";
    case Scope::kShared:
      return " shared";
    case Scope::kTile:
      return " tile";
  }
  return "";
}

// absl's string functions take no std::string_view here, hence the copies.
std::string DTypeText(DType dtype) { return std::string(Name(dtype)); }

std::string CastModeText(CastMode mode) {
  constexpr const char* kRoundings[] = {"", ".up", ".down"};
  return absl::StrCat(kRoundings[static_cast<int>(mode.rounding)], mode.saturate ? ".saturate" : "",
                      mode.flush ? ".flush" : "");
}

std::string FloatText(double value, DType dtype) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char buffer[64];
  std::to_chars_result end = dtype == DType::kF32 ? std::to_chars(buffer, buffer + 64, static_cast<float>(value))
                                                  : std::to_chars(buffer, buffer + 64, value);
  std::string text(buffer, end.ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string ConstText(const ExprNode& e) {
  if (e.dtype == DType::kBool) return e.int_value ? "true" : "false";
  std::string digits = e.kind == ExprKind::kFloat ? FloatText(e.float_value, e.dtype)
                       : e.dtype == DType::kU64   ? absl::StrCat(static_cast<uint64_t>(e.int_value))
                                                  : absl::StrCat(e.int_value);
  if (e.dtype == DType::kI64 || e.dtype == DType::kF32) return digits;  // what most constants are
  return absl::StrCat(DTypeText(e.dtype), "(", digits, ")");
}

class Printer {
 public:
  std::string Print(const Expr& e, Precedence around = kLowest);
  void Print(const Stmt& s, int indent, bool last);
  void Print(const Func& f);
  std::string& out() { return out_; }

 private:
  std::string NameOf(const Var& v) { return names_.Of(v.get(), v->name); }
  std::string NameOf(const Buffer& b) { return names_.Of(b.get(), b->name); }
  std::string Access(const Buffer& buffer, const std::vector<Expr>& indices) {
    return absl::StrCat(NameOf(buffer), "[", List(indices), "]");
  }
  std::string List(const std::vector<Expr>& exprs);
  std::string Declare(const Buffer& b);
  std::string PrintSum(const Expr& e);
  void PrintBlock(const StmtNode& s, int indent);
  std::string InstructionText(const StmtNode& s);
  void Line(int indent, const std::string& text) {
    absl::StrAppend(&out_, std::string(indent * 2, ' '), text, "\n");
    printed_ = 0;
  }

  NameTable names_;
  std::string out_;
  int printed_ = 0;  // nodes of this line
};

std::string Printer::List(const std::vector<Expr>& exprs) {
  std::string text;
  for (const Expr& e : exprs) absl::StrAppend(&text, text.empty() ? "" : ", ", Print(e));
  return text;
}

std::string Printer::Declare(const Buffer& b) {
  std::string dims;
  for (int64_t d : b->shape) absl::StrAppend(&dims, dims.empty() ? "" : ",", d);
  return absl::StrCat(NameOf(b), ": ", DTypeText(b->dtype), "[", dims, "]");
}

// a + -3 reads as a - 3, and a + b*-3 as a - b*3.
std::string Printer::PrintSum(const Expr& e) {
  const Expr& a = e->args[0];
  const Expr& b = e->args[1];
  std::string left = Print(a, kSumLevel);
  if (e->kind == ExprKind::kAdd) {
    if (b->kind == ExprKind::kInt && b->int_value < 0 && b->dtype == DType::kI64)
      return left + " - " + Print(Int(-b->int_value));
    if (b->kind == ExprKind::kMul && b->dtype == DType::kI64) {
      if (auto factor = AsInt(b->args[1]); factor && *factor < 0) {
        return left + " - " + Print(b->args[0] * Int(-*factor), kProductLevel);
      }
    }
    return left + " + " + Print(b, kSumLevel);
  }
  return left + " - " + Print(b, kProductLevel);
}

std::string Printer::Print(const Expr& e, Precedence around) {
  if (++printed_ > kMostPrinted) return "...";
  switch (e->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
      return ConstText(*e);
    case ExprKind::kVar:
      return NameOf(e->var);
    case ExprKind::kLoad:
      return Access(e->buffer, e->args);
    case ExprKind::kNot:
      return "!" + Print(e->args[0], kAtomLevel);
    case ExprKind::kCast:
      return absl::StrCat(DTypeText(e->dtype), CastModeText(e->cast_mode), "(", Print(e->args[0]), ")");
    default:
      break;
  }
  const Operator* op = FindOperator(e->kind);
  if (op == nullptr) return absl::StrCat(std::string(Name(e->kind)), "(", List(e->args), ")");
  std::string text;
  if (op->level == kSumLevel) {
    text = PrintSum(e);
  } else {
    // The right operand binds tighter, but for the associative ones; comparisons do not chain.
    bool associative = op->level == kOrLevel || op->level == kAndLevel;
    auto tighter = static_cast<Precedence>(op->level + 1);
    std::string left = Print(e->args[0], op->level == kCompareLevel ? tighter : op->level);
    text = absl::StrCat(left, op->text, Print(e->args[1], associative ? op->level : tighter));
  }
  return op->level < around ? "(" + text + ")" : text;
}

void Printer::PrintBlock(const StmtNode& s, int indent) {
  const BlockInfo& block = s.block;
  std::string bindings;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const IterVar& iter = block.iters[i];
    absl::StrAppend(&bindings, i == 0 ? "" : ", ", iter.reduce ? "reduce " : "", NameOf(iter.var), ": ", iter.extent);
    if (i < block.bindings.size()) absl::StrAppend(&bindings, " = ", Print(block.bindings[i]));
  }
  Line(indent, absl::StrCat("block ", block.name, "(", bindings, ")"));
  if (block.predicate) Line(indent + 1, absl::StrCat("where ", Print(block.predicate)));
  std::string target = Access(s.buffer, s.indices);
  if (block.init) Line(indent + 1, absl::StrCat("init ", target, " = ", Print(block.init)));
  Line(indent + 1, absl::StrCat(s.ahead > 0 ? "copy " : "", target, " = ", Print(s.value)));
  for (const IterVar& iter : block.iters) names_.Forget(iter.var.get());
}

// " in 64 columns, a: 8, 520, b turned: 64, 8"
std::string TiledText(const StmtNode& s) {
  std::string text = absl::StrCat(" in ", s.extent, " columns");
  for (size_t i = 0; i < s.tiled.size(); ++i) {
    const TiledMatrix& m = s.tiled[i];
    absl::StrAppend(&text, i == 0 ? ", a" : ", b", m.turned ? " turned: " : ": ", m.next_step, ", ", m.next_outer);
  }
  return text;
}

std::string Printer::InstructionText(const StmtNode& s) {
  const std::string word(Word(s.instruction));
  if (s.instruction == Instruction::kCommitCopies) return word;
  if (s.instruction == Instruction::kWaitCopies) return absl::StrCat(word, " but ", s.extent);
  const std::string to = absl::StrCat(word, " ", Access(s.buffer, s.indices));
  if (s.instruction == Instruction::kBeginProducts || s.instruction == Instruction::kEndProducts) return to;
  const bool adds = s.instruction == Instruction::kMultiply || s.instruction == Instruction::kAddProduct;
  const std::string text = absl::StrCat(to, adds ? " += " : " = ", Print(s.value));
  if (s.instruction == Instruction::kAddProduct) return text + TiledText(s);
  return s.instruction == Instruction::kExchange ? absl::StrCat(text, " of lane ^ ", s.extent) : text;
}

// `last`: nothing follows in the enclosing body, so an allocation's scope needs no indentation to show its end.
void Printer::Print(const Stmt& s, int indent, bool last) {
  switch (s->kind) {
    case StmtKind::kFor:
      Line(indent, absl::StrCat(std::string(Word(s->for_kind)), " ", NameOf(s->var), " in 0..", s->extent));
      return Print(s->body, indent + 1, true);
    case StmtKind::kSeq:
      for (size_t i = 0; i < s->stmts.size(); ++i) Print(s->stmts[i], indent, last && i + 1 == s->stmts.size());
      return;
    case StmtKind::kStore:
      return Line(indent,
                  absl::StrCat(s->ahead > 0 ? "copy " : "", Access(s->buffer, s->indices), " = ", Print(s->value)));
    case StmtKind::kIf:
      Line(indent, absl::StrCat("if ", Print(s->cond)));
      Print(s->body, indent + 1, true);
      if (s->else_body) {
        Line(indent, "else");
        Print(s->else_body, indent + 1, true);
      }
      return;
    case StmtKind::kAlloc:
      Line(indent, absl::StrCat("alloc ", Declare(s->buffer), ScopeText(s->buffer->scope)));
      return Print(s->body, last ? indent : indent + 1, true);
    case StmtKind::kBlock:
      return PrintBlock(*s, indent);
    case StmtKind::kPrefetch:
      return Line(indent, absl::StrCat("prefetch ", s->for_store ? "for store " : "", Access(s->buffer, s->indices)));
    case StmtKind::kBarrier:
      return Line(indent, "barrier");
    case StmtKind::kInstruction:
      return Line(indent, InstructionText(*s));
  }
}

void Printer::Print(const Func& f) {
  size_t inputs = f.params.size() - static_cast<size_t>(f.num_outputs);
  std::string in, out;
  for (size_t i = 0; i < f.params.size(); ++i) {
    std::string& list = i < inputs ? in : out;
    absl::StrAppend(&list, list.empty() ? "" : ", ", Declare(f.params[i]));
  }
  Line(0, absl::StrCat("func ", f.name, "(", in, ") -> (", out, ")"));
  if (f.body) Print(f.body, 1, true);
}

}  // namespace

std::string Text(const Expr& e) { return Printer().Print(e); }

std::string Text(const Stmt& s, int indent) {
  Printer printer;
  printer.Print(s, indent, true);
  return std::move(printer.out());
}

std::string FirstLine(const Stmt& s) {
  const std::string text = Text(s);
  return text.substr(0, text.find('\n'));
}

std::string Text(const Func& f) {
  Printer printer;
  printer.Print(f);
  return std::move(printer.out());
}

}  // namespace temper::ir
