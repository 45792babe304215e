// The files of page/, as they are.
#pragma once

#include <string_view>

namespace temper {

extern const std::string_view kPageHtml, kPageCss, kPageJs;

}  // namespace temper
