#include "serve/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/json_rules.h"
#include "grammar/json_schema.h"
#include "serve/api_error.h"

namespace walsh {
namespace {

using grammar::GraphBuilder;
using grammar::NodeId;
using grammar::RuleId;

// Writes what a model of some syntax writes.
class AnswerBuilder {
 public:
  AnswerBuilder(GraphBuilder& builder, const Tokenizer& tokenizer, const ChatSyntax& syntax,
                const ToolRequest& tools)
      : builder_(builder), tokenizer_(tokenizer), syntax_(syntax), tools_(tools) {}

  RuleId build(const std::optional<AnswerText>& text) {
    const RuleId root = builder_.rule("answer");
    const NodeId from = reasoning(builder_.start(root));
    if (tools_.any() && (tools_.required || text)) builder_.empty(calls(from), builder_.end(root));
    if (text && !tools_.required) {
      const bool harmony = syntax_.tools == ToolSyntax::harmony;
      const NodeId at = harmony ? marks(from, {"<|channel|>", "final", "<|message|>"}) : from;
      builder_.set_where(text->field);
      builder_.call(at, text->add_to(builder_), builder_.end(root));
    }
    return root;
  }

 private:
  bool is_special(const std::string& text) const {
    const auto id = tokenizer_.token_id(text);
    return id && tokenizer_.is_special(*id);
  }
  // A text that may be a special token.
  NodeId mark(NodeId from, const std::string& text) {
    return builder_.text(from, is_special(text) ? grammar::kSpecialMark + text : text);
  }
  NodeId marks(NodeId from, const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      from = mark(from, text);
    return from;
  }
  NodeId until(NodeId from, const std::string& text) {
    if (!is_special(text)) return builder_.until(from, text);
    const NodeId loop = builder_.node();
    builder_.empty(from, loop);
    builder_.one_of(loop, grammar::complement({}), loop);
    return mark(loop, text);
  }

  // Behind the reasoning that a model may begin with.
  NodeId reasoning(NodeId from) {
    const NodeId to = builder_.node();
    if (syntax_.tools == ToolSyntax::harmony) {
      builder_.empty(from, to);
      const NodeId text = marks(from, {"<|channel|>", "analysis", "<|message|>"});
      builder_.empty(marks(until(text, "<|end|>"), {"<|start|>", "assistant"}), to);
      return to;
    }
    if (!syntax_.thinking) builder_.empty(from, to);
    if (syntax_.think_end.empty() || syntax_.thought) return to;
    NodeId at = syntax_.thinking ? from : mark(from, syntax_.think_begin);
    at = until(at, syntax_.think_end);
    for (int i = 0; i < 3; ++i) {
      builder_.empty(at, to);
      at = builder_.text(at, "\n");
    }
    return to;
  }

  // The rule of a tool's arguments as JSON.
  RuleId arguments(size_t index) {
    const OrderedJson& function = tools_.tools[index]["function"];
    OrderedJson schema = OrderedJson::object();
    if (function.contains("parameters") && function["parameters"].is_object())
      schema = function["parameters"];
    if (!schema.contains("type") && !schema.contains("$ref")) schema["type"] = "object";
    builder_.set_where(fmt::format("tools[{}].function.parameters", index));
    return add_json_schema(builder_, schema);
  }
  std::string name(size_t index) const {
    return tools_.tools[index]["function"]["name"].get<std::string>();
  }

  // One call of any tool, as JSON: {"name": ..., `key`: ...}.
  NodeId json_call(NodeId from, const char* key) {
    const NodeId to = builder_.node();
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      const NodeId at = builder_.text(from, fmt::format(R"({{"name": "{}", "{}": )", name(i), key));
      builder_.empty(builder_.text(builder_.call(at, arguments(i)), "}"), to);
    }
    return to;
  }

  // A call and, where several may follow each other, further ones behind `between`.
  NodeId repeated(NodeId from, RuleId call, const std::string& between) {
    const NodeId to = builder_.call(from, call);
    if (tools_.parallel) builder_.call(builder_.text(to, between), call, to);
    return to;
  }

  NodeId calls(NodeId from) {
    const RuleId call = builder_.rule("call");
    const NodeId start = builder_.start(call), end = builder_.end(call);
    switch (syntax_.tools) {
      case ToolSyntax::hermes: {
        const NodeId object = builder_.text(mark(start, "<tool_call>"), "\n");
        const NodeId behind = builder_.text(json_call(object, "arguments"), "\n");
        builder_.empty(mark(behind, "</tool_call>"), end);
        return repeated(from, call, "\n");
      }
      case ToolSyntax::qwen: {
        const NodeId begin = builder_.text(mark(start, "<tool_call>"), "\n");
        for (size_t i = 0; i < tools_.tools.size(); ++i)
          builder_.empty(mark(builder_.text(qwen_call(begin, i), "\n"), "</tool_call>"), end);
        return repeated(from, call, "\n");
      }
      case ToolSyntax::llama:
        builder_.empty(json_call(start, "parameters"), end);
        return builder_.call(from, call);
      case ToolSyntax::mistral:
        builder_.empty(json_call(start, "arguments"), end);
        return builder_.text(repeated(builder_.text(mark(from, "[TOOL_CALLS]"), "["), call, ", "),
                             "]");
      case ToolSyntax::mistral_named:
        for (size_t i = 0; i < tools_.tools.size(); ++i) {
          const NodeId at = builder_.text(mark(start, "[TOOL_CALLS]"), name(i));
          builder_.call(mark(at, "[ARGS]"), arguments(i), end);
        }
        return repeated(from, call, "");
      case ToolSyntax::harmony:
        break;
    }
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      const NodeId at = builder_.text(marks(start, {"<|channel|>", "commentary"}),
                                      fmt::format(" to=functions.{} ", name(i)));
      const NodeId value = marks(builder_.text(mark(at, "<|constrain|>"), "json"), {"<|message|>"});
      builder_.call(value, arguments(i), end);
    }
    return builder_.call(from, call);
  }

  // Parameters in the order of the schema; texts as they are, other values as JSON.
  NodeId qwen_call(NodeId from, size_t index) {
    const OrderedJson none = OrderedJson::object();
    const OrderedJson& function = tools_.tools[index]["function"];
    const OrderedJson& schema =
        function.contains("parameters") && function["parameters"].is_object()
            ? function["parameters"]
            : none;
    const std::string where = fmt::format("tools[{}].function.parameters", index);
    NodeId at = builder_.text(from, fmt::format("<function={}>\n", name(index)));
    if (schema.contains("properties") && !schema["properties"].is_object())
      throw ApiError(400, fmt::format("'{}.properties' must be an object", where), where);
    const OrderedJson& properties = schema.contains("properties") ? schema["properties"] : none;
    for (const auto& [key, property] : properties.items()) {
      const NodeId next = builder_.node();
      const bool required = schema.contains("required") &&
                            std::find(schema["required"].begin(), schema["required"].end(), key) !=
                                schema["required"].end();
      if (!required) builder_.empty(at, next);
      const NodeId value = builder_.text(at, fmt::format("<parameter={}>\n", key));
      builder_.set_where(where + "/properties/" + key);
      builder_.empty(builder_.text(qwen_value(value, property, schema), "\n"), next);
      at = next;
    }
    return builder_.text(at, "</function>");
  }

  // A value with the end of its parameter behind it.
  NodeId qwen_value(NodeId from, const OrderedJson& property, const OrderedJson& schema) {
    constexpr const char* kEnd = "\n</parameter>";
    const bool text =
        property.is_object() && property.contains("type") && property["type"] == "string";
    if (text && property.contains("enum") && property["enum"].is_array()) {
      std::vector<std::string> texts;
      for (const OrderedJson& one : property["enum"])
        if (one.is_string()) texts.push_back(one.get<std::string>());
      return builder_.text(builder_.any_text(from, texts), kEnd);
    }
    if (text) return builder_.until(from, kEnd);
    OrderedJson whole = property;
    for (const char* key : {"$defs", "definitions"})
      if (whole.is_object() && schema.contains(key)) whole[key] = schema[key];
    return builder_.text(builder_.call(from, add_json_schema(builder_, whole)), kEnd);
  }

  GraphBuilder& builder_;
  const Tokenizer& tokenizer_;
  const ChatSyntax& syntax_;
  const ToolRequest& tools_;
};

template <typename Make>
std::shared_ptr<const grammar::TokenGrammar> grammar_of(const LoadedModel& model,
                                                        const std::string& key,
                                                        const std::string& field, Make make) {
  const std::string param = field.substr(0, field.find_first_of(".["));
  try {
    return model.grammars->get(model.tokenizer, model.model.config.vocab, key, field, make);
  } catch (const Error& e) {
    throw ApiError(400, e.what(), param);
  }
}

}  // namespace

std::shared_ptr<const grammar::TokenGrammar> chat_grammar(const LoadedModel& model,
                                                          const ChatSyntax& syntax,
                                                          const ToolRequest& tools,
                                                          const std::optional<AnswerText>& text) {
  if (!text && !tools.required) return nullptr;
  const std::string key =
      fmt::format("chat {} {} {} {} {} {} {} {}", static_cast<int>(syntax.tools),
                  syntax.think_begin, syntax.thinking, syntax.thought, tools.required,
                  tools.parallel, tools.tools.dump(), text ? text->key() : "");
  return grammar_of(model, key, text && !tools.required ? text->field : "tools", [&] {
    GraphBuilder builder("answer");
    AnswerBuilder answer(builder, model.tokenizer, syntax, tools);
    const RuleId root = answer.build(text);
    return builder.finish(root);
  });
}

std::shared_ptr<const grammar::TokenGrammar> text_grammar(const LoadedModel& model,
                                                          const std::optional<AnswerText>& text) {
  if (!text) return nullptr;
  return grammar_of(model, "text " + text->key(), text->field, [&] {
    GraphBuilder builder(text->field);
    const RuleId root = text->add_to(builder);
    return builder.finish(root);
  });
}

}  // namespace walsh
