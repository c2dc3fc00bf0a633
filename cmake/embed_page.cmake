# Combines the files of the page to one HTML text, and writes it and the OpenAPI document as a C++
# source.
# cmake -DFOLDER=src/serve/page -DOUTPUT=page_text.cpp -P embed_page.cmake
set(scripts math.js markdown.js store.js client.js pictures.js messages.js settings.js page.js)
file(READ ${FOLDER}/index.html page)
file(READ ${FOLDER}/style.css style)
file(READ ${FOLDER}/openapi.json openapi)
set(script "\"use strict\";\n")
foreach(name ${scripts})
  file(READ ${FOLDER}/${name} text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUTPUT} "// Written by cmake/embed_page.cmake.
#include \"serve/page.h\"

namespace walsh {

const std::string_view kPageText = R\"walsh_page(${page})walsh_page\";
const std::string_view kOpenApiText = R\"walsh_page(${openapi})walsh_page\";

}  // namespace walsh
")
