#include "serve/messages_tools.h"

#include <fmt/format.h>

#include <string_view>

#include "serve/api_error.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

// Describes a tool that clients name by type, without a schema. Each type ends with the date of its
// version.
struct KnownTool {
  const char *type, *description, *schema;
};

constexpr KnownTool kClientTools[] = {
    {"bash_", "Runs a command in a bash session that stays open between calls.",
     R"({"type": "object", "properties": {
       "command": {"type": "string", "description": "The command; not needed to restart."},
       "restart": {"type": "boolean", "description": "True starts a new session."}},
       "additionalProperties": false})"},
    {"text_editor_",
     "Views, creates and edits text files: view (a file or a folder), create, str_replace "
     "(old_str, "
     "which stands in the file once, by new_str), insert (insert_text after line insert_line).",
     R"({"type": "object", "properties": {
       "command": {"enum": ["view", "create", "str_replace", "insert"]},
       "path": {"type": "string", "description": "The file or folder."},
       "file_text": {"type": "string", "description": "For create: the text of the file."},
       "old_str": {"type": "string", "description": "For str_replace: the text to replace."},
       "new_str": {"type": "string", "description": "For str_replace: what takes its place."},
       "insert_line": {"type": "integer", "description": "For insert: 0 is the beginning."},
       "insert_text": {"type": "string", "description": "For insert: the text."},
       "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2,
         "description": "For view: the first and the last line; -1 is the end."}},
       "required": ["command", "path"], "additionalProperties": false})"},
    {"memory_",
     "Keeps notes in files below /memories: view (a file or a folder), create, str_replace, "
     "insert, "
     "delete, rename.",
     R"({"type": "object", "properties": {
       "command": {"enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
       "path": {"type": "string", "description": "The file or folder; not for rename."},
       "file_text": {"type": "string", "description": "For create: the text of the file."},
       "old_str": {"type": "string", "description": "For str_replace: the text to replace."},
       "new_str": {"type": "string", "description": "For str_replace: what takes its place."},
       "insert_line": {"type": "integer", "description": "For insert: 0 is the beginning."},
       "insert_text": {"type": "string", "description": "For insert: the text."},
       "old_path": {"type": "string", "description": "For rename: the present name."},
       "new_path": {"type": "string", "description": "For rename: the new name."},
       "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2,
         "description": "For view: the first and the last line; -1 is the end."}},
       "required": ["command"], "additionalProperties": false})"},
};

OrderedJson known_function(const OrderedJson& tool, const std::string& type,
                           const std::string& path) {
  for (const KnownTool& known : kClientTools) {
    const std::string_view begin = known.type;
    if (!type.starts_with(begin) || type.find_first_not_of("0123456789", begin.size()) != type.npos)
      continue;
    return {{"name", text_value(tool, "name", path)},
            {"description", known.description},
            {"parameters", parse_ordered_json(known.schema, type)}};
  }
  throw ApiError(400,
                 fmt::format("'{}' is the tool \"{}\", which this server cannot offer: it has "
                             "tools that the client runs (type \"custom\", bash_..., "
                             "text_editor_..., memory_...) and none of its own",
                             path, type),
                 path + ".type");
}

}  // namespace

OrderedJson function_of(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object()) refuse_value(path, "an object");
  const std::string type =
      find_value(tool, "type") == nullptr ? "custom" : text_value(tool, "type", path);
  OrderedJson function;
  if (type == "custom") {
    function = {{"name", text_value(tool, "name", path)}};
    if (tool.contains("description")) function["description"] = tool["description"];
    if (tool.contains("input_schema")) function["parameters"] = tool["input_schema"];
  } else {
    function = known_function(tool, type, path);
  }
  if (tool.contains("strict")) function["strict"] = tool["strict"];
  return function;
}

}  // namespace walsh
