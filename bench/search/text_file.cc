#include "bench/search/text_file.h"

#include <zlib.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace temper {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("can not read ", path));
  std::string text;
  char buffer[1 << 16];
  int read = 0;
  while ((read = gzread(file.get(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(read));
  if (read < 0) return absl::InvalidArgumentError(absl::StrCat(path, " is damaged"));
  return text;
}

}  // namespace temper
