#include "grammar/tagged_object.h"

#include <algorithm>
#include <map>
#include <utility>

#include "grammar/schema_compiler.h"
#include "grammar/schema_references.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

using Properties = std::vector<SchemaCompiler::Property>;

bool is_object(const FlatSchema& way, const std::string& where) {
  return (kinds_of(way.keywords, where) & kObject) != 0;
}

// Returns the members that are texts in all ways. The parser of an answer knows a member's name but
// not which of several lists it belongs to.
std::set<std::string> texts_of(SchemaCompiler& compiler, const std::vector<Properties>& ways) {
  std::map<std::string, bool> texts;
  for (const Properties& properties : ways) {
    for (const SchemaCompiler::Property& property : properties) {
      const auto values = compiler.reader().read(property.schema, property.path);
      const bool text = !values.empty() &&
                        std::all_of(values.begin(), values.end(),
                                    [&](const FlatSchema& way) { return compiler.is_text(way); });
      const auto [place, added] = texts.try_emplace(property.name, text);
      if (!added) place->second = place->second && text;
    }
  }
  std::set<std::string> names;
  for (const auto& [name, text] : texts)
    if (text) names.insert(name);
  return names;
}

// Refuses constraints that the members alone cannot express.
Properties checked(SchemaCompiler& compiler, const FlatSchema& way) {
  const SchemaReader& reader = compiler.reader();
  if (way.keywords.contains("enum"))
    reader.refuse(way.path + "/enum", "cannot be enforced in this form of tool calls");
  Properties properties = compiler.properties_of(way);
  for (const auto& property : properties)
    if (property.name.empty() || property.name.find_first_of("<>\r\n") != std::string::npos)
      reader.refuse(property.path, "has a name that this form of tool calls cannot express");
  if (way.keywords.contains("has"))
    reader.refuse(way.path, "cannot be enforced in this form of tool calls");
  const auto required = std::count_if(properties.begin(), properties.end(),
                                      [](const auto& property) { return property.required; });
  if (compiler.size_bound(way, "minProperties", 0) > required)
    reader.refuse(way.path + "/minProperties", "cannot be enforced in this form of tool calls");
  const auto count = static_cast<int64_t>(properties.size());
  if (compiler.size_bound(way, "maxProperties", count) < count)
    reader.refuse(way.path + "/maxProperties", "cannot be enforced in this form of tool calls");
  return properties;
}

}  // namespace

std::vector<std::vector<TaggedMember>> add_tagged_object(GraphBuilder& builder,
                                                         const OrderedJson& schema,
                                                         const std::string& mark,
                                                         const std::string& gap) {
  const OrderedJson root = with_pointers(schema, builder.where(), builder.budget());
  SchemaCompiler compiler(builder, root);
  SchemaReader& reader = compiler.reader();
  std::vector<Properties> ways;
  for (const FlatSchema& way : reader.read(root, ""))
    if (is_object(way, reader.where() + way.path)) ways.push_back(checked(compiler, way));
  if (ways.empty()) reader.refuse("", "allows no object");
  const std::set<std::string> texts = texts_of(compiler, ways);
  std::vector<std::vector<TaggedMember>> result;
  for (const Properties& properties : ways) {
    auto& members = result.emplace_back();
    for (const SchemaCompiler::Property& property : properties) {
      const RuleId value = builder.rule(property.path);
      const NodeId from = builder.start(value), to = builder.end(value);
      if (texts.contains(property.name)) {
        for (const FlatSchema& way : reader.read(property.schema, property.path))
          builder.empty(compiler.add_text(from, way, mark, gap), to);
      } else {
        const RuleId json = compiler.compile(property.schema, property.path);
        builder.empty(builder.text(builder.call(from, json), gap + mark), to);
      }
      members.push_back({property.name, property.required, value});
    }
  }
  return result;
}

std::set<std::string> text_members(const GraphBuilder& builder, const OrderedJson& schema) {
  try {
    GraphBuilder unused(builder.where(), builder);
    const OrderedJson root = with_pointers(schema, unused.where(), unused.budget());
    SchemaCompiler compiler(unused, root);
    std::vector<Properties> ways;
    for (const FlatSchema& way : compiler.reader().read(root, ""))
      if (is_object(way, builder.where())) ways.push_back(compiler.properties_of(way));
    return texts_of(compiler, ways);
  } catch (const Error&) {  // the schema is not enforced, so only its plain types count
  }
  std::set<std::string> names;
  for (const auto& [name, property] : members_of(schema, "properties"))
    if (property->is_object() && property->contains("type") && (*property)["type"] == "string")
      names.insert(std::string(name));
  return names;
}

}  // namespace walsh::grammar
