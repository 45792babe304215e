#include "compiler/ops/reference/gemm.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "base/division.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // whose clones are chosen before its runtime is there
#define TEMPER_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define TEMPER_CLONES
#endif

namespace temper::reference {
namespace {

constexpr int64_t kRows = 6, kVector = 8, kColumns = 2 * kVector;  // register tile
constexpr int64_t kBlockM = 96, kBlockN = 1024, kBlockK = 256;
constexpr double kWorthThreads = 1e9;  // multiplications

// No longer than registers are from AVX on: what is longer the compiler keeps in memory.
using Lanes = float __attribute__((vector_size(kVector * sizeof(float)), aligned(4)));

// tile[kRows][kColumns] = a[k][kRows] * b[k][kColumns], both packed.
TEMPER_CLONES void MultiplyTile(int64_t k, const float* a, const float* b, float* tile) {
  Lanes sums[kRows][2] = {};
  for (int64_t i = 0; i < k; ++i, a += kRows, b += kColumns) {
    Lanes row[2];
    std::memcpy(row, b, sizeof(row));
#pragma GCC unroll 6
    for (int64_t r = 0; r < kRows; ++r) {
      sums[r][0] += a[r] * row[0];
      sums[r][1] += a[r] * row[1];
    }
  }
  std::memcpy(tile, sums, sizeof(sums));
}

// [ceil(m / kRows)][k][kRows], zeros after the last row.
void PackLeft(const Matrix& a, int64_t m0, int64_t m, int64_t k0, int64_t k, float* packed) {
  for (int64_t panel = 0; panel < m; panel += kRows) {
    for (int64_t j = 0; j < k; ++j) {
      for (int64_t i = 0; i < kRows; ++i) {
        bool inside = panel + i < m;
        *packed++ = inside ? a.data[(m0 + panel + i) * a.row_stride + (k0 + j) * a.column_stride] : 0;
      }
    }
  }
}

// [ceil(n / kColumns)][k][kColumns], zeros after the last column.
void PackRight(const RowReader& b, int64_t k0, int64_t k, int64_t n0, int64_t n, float* packed) {
  float row[kBlockN + kColumns];
  for (int64_t j = 0; j < k; ++j) {
    b(k0 + j, n0, n, row);
    std::fill(row + n, row + n + kColumns, 0.0f);
    for (int64_t panel = 0; panel < n; panel += kColumns) {
      std::memcpy(packed + (panel * k) + j * kColumns, row + panel, kColumns * sizeof(float));
    }
  }
}

void MultiplyBlock(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, int64_t ldc) {
  alignas(64) float tile[kRows * kColumns];
  for (int64_t column = 0; column < n; column += kColumns) {
    int64_t columns = std::min(kColumns, n - column);
    for (int64_t row = 0; row < m; row += kRows) {
      MultiplyTile(k, a + row * k, b + column * k, tile);
      for (int64_t i = 0; i < std::min(kRows, m - row); ++i) {
        float* out = c + (row + i) * ldc + column;
        for (int64_t j = 0; j < columns; ++j) out[j] += tile[i * kColumns + j];
      }
    }
  }
}

// Too few rows to be worth packing: each row of b, read once, is added to every row of c, through sums of a block.
void MultiplyThin(int64_t m, int64_t n, int64_t k, const Matrix& a, const RowReader& b, float* c, int64_t ldc) {
  std::vector<float> row(static_cast<size_t>(n)), sums(static_cast<size_t>(m * n));
  for (int64_t k0 = 0; k0 < k; k0 += kBlockK) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t j = k0; j < std::min(k, k0 + kBlockK); ++j) {
      b(j, 0, n, row.data());
      for (int64_t i = 0; i < m; ++i) {
        float factor = a.data[i * a.row_stride + j * a.column_stride];
        for (int64_t x = 0; x < n; ++x) sums[i * n + x] += factor * row[x];
      }
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t x = 0; x < n; ++x) c[i * ldc + x] += sums[i * n + x];
    }
  }
}

// What a thread packs. Made before it starts: where there is no memory, that is the caller's to know.
struct Packed {
  std::vector<float> left = std::vector<float>(kBlockM * kBlockK);
  std::vector<float> right = std::vector<float>((kBlockN + kColumns) * kBlockK);
};

// Columns [begin, end).
void MultiplyColumns(int64_t m, int64_t begin, int64_t end, int64_t k, const Matrix& a, const RowReader& b, float* c,
                     int64_t ldc, Packed& packed) {
  for (int64_t n0 = begin; n0 < end; n0 += kBlockN) {
    int64_t columns = std::min(kBlockN, end - n0);
    for (int64_t k0 = 0; k0 < k; k0 += kBlockK) {
      int64_t depth = std::min(kBlockK, k - k0);
      PackRight(b, k0, depth, n0, columns, packed.right.data());
      for (int64_t m0 = 0; m0 < m; m0 += kBlockM) {
        int64_t rows = std::min(kBlockM, m - m0);
        PackLeft(a, m0, rows, k0, depth, packed.left.data());
        MultiplyBlock(rows, columns, depth, packed.left.data(), packed.right.data(), c + m0 * ldc + n0, ldc);
      }
    }
  }
}

int64_t ThreadsFor(int64_t m, int64_t n, int64_t k) {
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < kWorthThreads) return 1;
  constexpr int64_t kFewestColumns = 64;  // each thread packs all of A
  cpu_set_t mine;
  const int64_t cpus = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
  return std::clamp<int64_t>(cpus, 1, n / kFewestColumns + 1);
}

}  // namespace

RowReader Rows(const Matrix& b) {
  return [b](int64_t k, int64_t n0, int64_t count, float* row) {
    const float* from = b.data + k * b.row_stride + n0 * b.column_stride;
    if (b.column_stride == 1) {
      std::copy_n(from, count, row);
      return;
    }
    for (int64_t j = 0; j < count; ++j) row[j] = from[j * b.column_stride];
  };
}

void Gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const RowReader& b, float* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
  if (m <= 2) return MultiplyThin(m, n, k, a, b, c, ldc);
  const int64_t threads = ThreadsFor(m, n, k), share = (n / threads / kColumns + 1) * kColumns;
  std::vector<Packed> packed(static_cast<size_t>(CeilDiv(n, share)));
  const auto multiply = [&](size_t i) {
    const int64_t begin = static_cast<int64_t>(i) * share;
    MultiplyColumns(m, begin, std::min(n, begin + share), k, a, b, c, ldc, packed[i]);
  };
  std::vector<std::thread> others;
  others.reserve(packed.size());
  for (size_t i = 1; i < packed.size(); ++i) {
    try {
      others.emplace_back(multiply, i);
    } catch (const std::exception&) {  // it may start no more of them, or has no memory for one
      multiply(i);
    }
  }
  if (!packed.empty()) multiply(0);
  for (std::thread& other : others) other.join();
}

}  // namespace temper::reference
