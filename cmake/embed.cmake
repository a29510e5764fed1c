# SPDX-License-Identifier: Apache-2.0
#
# Writes OUT, a source file with the contents of FILES (a list, divided by commas) for src/page/assets.h:
#   cmake -DOUT=x.cc -DFILES=a.html,b.js -P embed.cmake
# As numbers: a string literal has a length limit in some compilers, and needs escapes.

string(REPLACE "," ";" FILES "${FILES}")
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(table "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  get_filename_component(extension "${file}" LAST_EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: no media type is known for .${extension}; name it in cmake/embed.cmake")
  endif()
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${bytes}0};\n")
  string(APPEND table "    {\"/${name}\", \"${type_${extension}}\", Text(kFile${number}, sizeof(kFile${number}) - 1)},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE "${OUT}" "// SPDX-License-Identifier: Apache-2.0
#include \"page/assets.h\"

namespace hami::page {
namespace {
${arrays}
std::string_view Text(const unsigned char* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}
}  // namespace

std::span<const Asset> Assets() {
  static const Asset kAssets[] = {
${table}  };
  return kAssets;
}

}  // namespace hami::page
")
