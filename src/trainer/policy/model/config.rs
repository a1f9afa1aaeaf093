//! `config.json` of a Qwen2, Qwen3 or Llama checkpoint, as transformers 4 and 5 write it.

use crate::numerics::Heads;
use crate::policy::{PolicyError, RopeScaling};
use serde_json::{Value, json};

// Larger sizes mean a damaged file; they are refused before memory is asked for. The largest Qwen2
// has 152,064 tokens, width 29,568, 80 layers, 64 heads and 1,010,000 positions.
const MOST_TOKENS: i64 = 1 << 24;
const MOST_WIDTH: i64 = 1 << 20;
const MOST_LAYERS: i64 = 1 << 10;
const MOST_HEADS: i64 = 1 << 10;
const MOST_POSITIONS: i64 = 1 << 20;

/// transformers 5.23, modeling_rope_utils.py, `default_theta`.
const DEFAULT_THETA: f64 = 10_000.0;

/// Architectures that are one decoder but for biases and norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Biases of queries, keys and values: Qwen2 and Qwen2.5.
    Qwen2,
    /// Norms of queries and keys.
    Qwen3,
    /// Neither.
    Llama,
}

impl Family {
    /// `model_type`, and the class of transformers.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Self::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
            Self::Llama => ("llama", "LlamaForCausalLM"),
        }
    }

    pub fn has_biases(self) -> bool {
        self == Self::Qwen2
    }

    pub fn has_head_norms(self) -> bool {
        self == Self::Qwen3
    }

    fn from_json(json: &Value) -> Result<Self, PolicyError> {
        let name = text(json, "model_type")?;
        let known = [Self::Qwen2, Self::Qwen3, Self::Llama];
        let family = known.into_iter().find(|family| family.names().0 == name);
        family
            .ok_or_else(|| unsupported("model_type", json, "only dense qwen2, qwen3 and llama are"))
    }
}

/// The shape of a model, with the field names of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub family: Family,
    pub vocab_size: i64,
    pub hidden_size: i64,
    pub intermediate_size: i64,
    pub num_hidden_layers: i64,
    pub num_attention_heads: i64,
    pub num_key_value_heads: i64,
    pub head_dim: i64,
    pub max_position_embeddings: i64,
    pub rope_theta: f64,
    pub rope_scaling: Option<RopeScaling>,
    pub rms_norm_eps: f64,
    pub tie_word_embeddings: bool,
}

impl Config {
    /// Reads the fields, refusing what would silently change the numbers.
    pub fn from_json(json: &Value) -> Result<Self, PolicyError> {
        let family = Family::from_json(json)?;
        if text(json, "hidden_act")? != "silu" {
            return Err(unsupported("hidden_act", json, "only silu is"));
        }
        refuse_quantised(json)?;
        refuse_variants(family, json)?;
        let heads = integer(json, "num_attention_heads", MOST_HEADS)?;
        let hidden_size = integer(json, "hidden_size", MOST_WIDTH)?;
        let refuse = |name: &str, reason| Err(unsupported(name, json, reason));
        let head_dim = match stated(json, "head_dim", MOST_WIDTH)? {
            Some(width) => width,
            None if family == Family::Qwen3 => 128, // transformers 5.23, configuration_qwen3.py
            None if hidden_size % heads != 0 => {
                let reason = "it must divide hidden_size where head_dim is not stated";
                return refuse("num_attention_heads", reason);
            }
            None => hidden_size / heads,
        };
        let positions = integer(json, "max_position_embeddings", MOST_POSITIONS)?;
        let (rope_theta, rope_scaling) = rope(json, positions)?;
        let config = Self {
            family,
            vocab_size: integer(json, "vocab_size", MOST_TOKENS)?,
            hidden_size,
            intermediate_size: integer(json, "intermediate_size", MOST_WIDTH)?,
            num_hidden_layers: integer(json, "num_hidden_layers", MOST_LAYERS)?,
            num_attention_heads: heads,
            num_key_value_heads: stated(json, "num_key_value_heads", MOST_HEADS)?.unwrap_or(heads),
            head_dim,
            max_position_embeddings: positions,
            rope_theta,
            rope_scaling,
            rms_norm_eps: positive("rms_norm_eps", json.get("rms_norm_eps"))?,
            tie_word_embeddings: match present(json, "tie_word_embeddings") {
                None => false,
                Some(Value::Bool(tied)) => *tied,
                Some(other) => return Err(key("tie_word_embeddings", "a boolean", Some(other))),
            },
        };
        if config.num_attention_heads % config.num_key_value_heads != 0 {
            return refuse("num_key_value_heads", "it must divide num_attention_heads");
        }
        if config.head_dim % 2 != 0 {
            return refuse("head_dim", "rotary embedding needs an even width");
        }
        Ok(config)
    }

    pub fn heads(&self) -> Heads {
        Heads {
            queries: self.num_attention_heads as usize,
            keys: self.num_key_value_heads as usize,
            width: self.head_dim as usize,
        }
    }

    /// The tensor that makes logits of hidden states.
    pub fn head_name(&self) -> &'static str {
        if self.tie_word_embeddings { "model.embed_tokens.weight" } else { "lm_head.weight" }
    }

    /// As `config.json`, for transformers 4 (`rope_theta`, `torch_dtype`) and 5 (`rope_parameters`, `dtype`).
    pub fn to_json(&self, eos_token_id: u32, pad_token_id: u32) -> Value {
        let (model_type, class) = self.family.names();
        let scaling = json!(self.rope_scaling);
        let mut rope = json!({"rope_theta": self.rope_theta, "rope_type": "default"});
        for (key, value) in scaling.as_object().into_iter().flatten() {
            rope[key] = value.clone();
        }
        let mut json = json!({
            "architectures": [class],
            "attention_dropout": 0.0,
            "bos_token_id": null,
            "dtype": "float32",
            "eos_token_id": eos_token_id,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "model_type": model_type,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "num_key_value_heads": self.num_key_value_heads,
            "pad_token_id": pad_token_id,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": rope,
            "rope_scaling": scaling,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tie_word_embeddings,
            "torch_dtype": "float32",
            "use_cache": true,
            "use_sliding_window": false,
            "vocab_size": self.vocab_size,
        });
        if !self.family.has_biases() {
            json["attention_bias"] = json!(false);
        }
        if self.family == Family::Llama {
            json["mlp_bias"] = json!(false);
        }
        json
    }

    pub fn parameters(&self) -> u64 {
        let count = |(_, shape): (String, Vec<i64>)| shape.into_iter().product::<i64>() as u64;
        self.tensor_shapes().into_iter().map(count).sum()
    }

    /// Every tensor of a checkpoint of this shape: name → dimensions.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<i64>)> {
        let queries = self.num_attention_heads * self.head_dim;
        let keys = self.num_key_value_heads * self.head_dim;
        let (hidden, inner) = (self.hidden_size, self.intermediate_size);
        let mut shapes = vec![
            ("model.embed_tokens.weight".to_string(), vec![self.vocab_size, hidden]),
            ("model.norm.weight".to_string(), vec![hidden]),
        ];
        for layer in 0..self.num_hidden_layers {
            let mut add = |name: &str, shape: Vec<i64>| {
                shapes.push((format!("model.layers.{layer}.{name}"), shape));
            };
            add("input_layernorm.weight", vec![hidden]);
            add("post_attention_layernorm.weight", vec![hidden]);
            for (name, out) in [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)] {
                add(&format!("self_attn.{name}.weight"), vec![out, hidden]);
                if self.family.has_biases() {
                    add(&format!("self_attn.{name}.bias"), vec![out]);
                }
            }
            if self.family.has_head_norms() {
                add("self_attn.q_norm.weight", vec![self.head_dim]);
                add("self_attn.k_norm.weight", vec![self.head_dim]);
            }
            add("self_attn.o_proj.weight", vec![hidden, queries]);
            add("mlp.gate_proj.weight", vec![inner, hidden]);
            add("mlp.up_proj.weight", vec![inner, hidden]);
            add("mlp.down_proj.weight", vec![hidden, inner]);
        }
        if !self.tie_word_embeddings {
            shapes.push(("lm_head.weight".to_string(), vec![self.vocab_size, hidden]));
        }
        shapes
    }
}

/// Weights in few bits lie in tensors of other names and types.
fn refuse_quantised(json: &Value) -> Result<(), PolicyError> {
    let Some(stated) = present(json, "quantization_config") else { return Ok(()) };
    let got = stated.get("quant_method").unwrap_or(stated).to_string();
    let reason = "weights of few bits are not read; take the model from which this one was quantised, or \
                  save what `dequantize()` of transformers makes of it";
    let (key, reason) = ("quantization_config".to_string(), reason.to_string());
    Err(PolicyError::Unsupported { key, got, reason })
}

/// Refuses what the architectures allow and this decoder does not have.
fn refuse_variants(family: Family, json: &Value) -> Result<(), PolicyError> {
    for (name, reason) in [
        ("use_sliding_window", "only full attention is"),
        ("use_mrope", "only one position a token is"),
        ("attention_bias", "only Qwen2's biases of queries, keys and values are"),
        ("mlp_bias", "only layers without it are"),
    ] {
        let is_unused = name == "use_sliding_window" && has_only_full_layers(family, json);
        if present(json, name).is_some_and(|value| *value != false) && !is_unused {
            return Err(unsupported(name, json, reason));
        }
    }
    let is_full = |layers: &Value| {
        layers.as_array().is_some_and(|all| all.iter().all(|layer| layer == "full_attention"))
    };
    if present(json, "layer_types").is_some_and(|layers| !is_full(layers)) {
        return Err(unsupported("layer_types", json, "only full attention is"));
    }
    Ok(())
}

/// transformers 5.23, configuration_qwen2.py and configuration_qwen3.py: windows begin at layer `max_window_layers`.
fn has_only_full_layers(family: Family, json: &Value) -> bool {
    const MAX_WINDOW_LAYERS: i64 = 28;
    let layers = json.get("num_hidden_layers").and_then(Value::as_i64);
    let windows = present(json, "max_window_layers").map_or(Some(MAX_WINDOW_LAYERS), Value::as_i64);
    let is_stated = json.get("use_sliding_window") == Some(&Value::Bool(true));
    let is_before = || layers.zip(windows).is_some_and(|(layers, windows)| layers <= windows);
    is_stated && family != Family::Llama && (present(json, "layer_types").is_some() || is_before())
}

/// The frequencies' base and scaling, which may stand in two places, but then must agree.
fn rope(json: &Value, positions: i64) -> Result<(f64, Option<RopeScaling>), PolicyError> {
    let mut theta: Option<(&str, f64, &Value)> = None;
    let mut scaling: Option<(&str, Option<RopeScaling>)> = None;
    for name in ["rope_theta", "rope_scaling", "rope_parameters"] {
        let is_top = name == "rope_theta";
        let Some(rope) = (if is_top { Some(json) } else { present(json, name) }) else { continue };
        let rope = rope.as_object().ok_or_else(|| key(name, "an object", Some(rope)))?;
        if let Some(value) = rope.get("rope_theta").filter(|value| !value.is_null()) {
            let number = positive("rope_theta", Some(value))?;
            match theta {
                Some((first, other, stated)) if other != number => {
                    let reason = format!("{first} says {stated}, {name} says {value}");
                    return Err(unsupported("rope_theta", json, reason));
                }
                _ => theta = Some((name, number, value)),
            }
        }
        if is_top {
            continue;
        }
        let stated = RopeScaling::from_json(rope, positions)
            .map_err(|reason| unsupported(name, json, reason))?;
        match &scaling {
            Some((first, other)) if *other != stated => {
                return Err(unsupported(first, json, format!("{name} says something else")));
            }
            _ => scaling = Some((name, stated)),
        }
    }
    for name in ["partial_rotary_factor", "original_max_position_embeddings"] {
        if present(json, name).is_some_and(|value| *value != 1.0) {
            return Err(unsupported(name, json, "it is read in rope_parameters alone"));
        }
    }
    let theta = theta.map_or(DEFAULT_THETA, |(_, theta, _)| theta);
    Ok((theta, scaling.and_then(|(_, scaling)| scaling)))
}

fn text<'a>(json: &'a Value, name: &str) -> Result<&'a str, PolicyError> {
    let value = json.get(name);
    value.and_then(Value::as_str).ok_or_else(|| key(name, "a string", value))
}

fn integer(json: &Value, name: &str, most: i64) -> Result<i64, PolicyError> {
    match json.get(name).and_then(Value::as_i64) {
        Some(value) if value > 0 && value <= most => Ok(value),
        Some(value) if value > most => {
            Err(unsupported(name, json, "it is larger than that of any Qwen2 model"))
        }
        _ => Err(key(name, "a positive integer", json.get(name))),
    }
}

/// `None` where the key is absent or null.
fn stated(json: &Value, name: &str, most: i64) -> Result<Option<i64>, PolicyError> {
    present(json, name).map(|_value| integer(json, name, most)).transpose()
}

fn present<'a>(json: &'a Value, name: &str) -> Option<&'a Value> {
    json.get(name).filter(|value| !value.is_null())
}

fn positive(name: &str, value: Option<&Value>) -> Result<f64, PolicyError> {
    match value.and_then(Value::as_f64) {
        Some(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(key(name, "a positive number", value)),
    }
}

fn key(name: &str, expected: &'static str, got: Option<&Value>) -> PolicyError {
    let got = got.map_or("nothing".to_string(), Value::to_string);
    PolicyError::Key { key: name.to_string(), expected, got }
}

fn unsupported(name: &str, json: &Value, reason: impl Into<String>) -> PolicyError {
    let got = json.get(name).map_or("{}".to_string(), Value::to_string);
    PolicyError::Unsupported { key: name.to_string(), got, reason: reason.into() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn tiny() -> Config {
        Config {
            family: Family::Qwen2,
            vocab_size: 27,
            hidden_size: 16,
            intermediate_size: 24,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 4,
            max_position_embeddings: 64,
            rope_theta: 10000.0,
            rope_scaling: None,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        }
    }

    #[test]
    fn a_written_config_reads_back_in_the_style_of_either_version() {
        let json = tiny().to_json(1, 0);
        assert_eq!(Config::from_json(&json).unwrap(), tiny());
        for family in [Family::Qwen3, Family::Llama] {
            let other = Config { family, ..tiny() };
            assert_eq!(Config::from_json(&other.to_json(1, 0)).unwrap(), other);
        }
        for (missing, _) in [("rope_parameters", 5), ("rope_theta", 4)] {
            let mut style = json.clone();
            style.as_object_mut().unwrap().remove(missing);
            assert_eq!(Config::from_json(&style).unwrap(), tiny(), "without {missing}");
        }
    }

    #[test]
    fn what_would_change_the_numbers_is_refused_by_name() {
        for (name, value) in [
            ("model_type", json!("mistral")),
            ("use_mrope", json!(true)),
            ("quantization_config", json!({"quant_method": "gptq", "bits": 4})),
            ("attention_bias", json!(true)),
            ("layer_types", json!(["full_attention", "sliding_attention"])),
            ("layer_types", json!("sliding_attention")),
            ("rope_scaling", json!("yarn")),
            ("rope_parameters", json!(true)),
            ("use_sliding_window", json!("true")),
            ("hidden_act", json!("gelu")),
            ("rope_scaling", json!({"type": "yarn", "factor": 4.0})),
            ("rope_scaling", json!({"rope_theta": 5e5})),
            ("rope_parameters", json!({"rope_theta": 5e5})),
            ("rope_parameters", json!({"rope_type": "dynamic", "factor": 2.0})),
            ("rope_parameters", json!({"rope_type": "longrope", "factor": 2.0})),
            ("rope_parameters", json!({"rope_type": "llama3", "factor": 8.0})),
            ("rope_parameters", json!({"rope_type": "yarn", "factor": -4.0})),
            ("rope_parameters", json!({"rope_type": "yarn", "factor": 4.0, "beta": 1.0})),
            ("rope_parameters", json!({"full_attention": {"rope_theta": 1e6}})),
            ("partial_rotary_factor", json!(0.5)),
            ("rope_parameters", json!({"rope_type": "linear", "rope_theta": 1e4})),
            ("rope_parameters", json!({"rope_theta": 1e4, "partial_rotary_factor": 0.5})),
            ("num_key_value_heads", json!(3)),
            ("hidden_size", json!(-16)),
            ("vocab_size", json!("many")),
            ("max_position_embeddings", json!(1i64 << 40)),
            ("num_hidden_layers", json!(1 << 30)),
            ("num_attention_heads", json!(0)),
            ("rope_theta", json!(0.0)),
            ("rms_norm_eps", json!(-1e-6)),
        ] {
            let mut json = tiny().to_json(1, 0);
            if name == "rope_theta" {
                json["rope_parameters"] = Value::Null;
            }
            json[name] = value;
            let error = Config::from_json(&json).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn a_window_of_no_layer_and_a_width_that_is_not_stated_are_those_of_transformers() {
        for (family, windows, is_read) in [
            (Family::Qwen2, json!(2), true),
            (Family::Qwen3, Value::Null, true),
            (Family::Qwen2, json!(1), false),
            (Family::Llama, json!(2), false),
        ] {
            let mut json = Config { family, ..tiny() }.to_json(1, 0);
            json["use_sliding_window"] = json!(true);
            json["max_window_layers"] = windows;
            assert_eq!(Config::from_json(&json).is_ok(), is_read, "{json}");
        }
        for (family, width) in [(Family::Qwen2, 4), (Family::Qwen3, 128)] {
            let mut json = Config { family, ..tiny() }.to_json(1, 0);
            json.as_object_mut().unwrap().remove("head_dim");
            assert_eq!(Config::from_json(&json).unwrap().head_dim, width);
        }
    }

    #[test]
    fn scaled_rotary_embedding_reads_back_and_two_values_of_theta_are_both_named() {
        let llama = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
        let yarn = json!({"type": "yarn", "factor": 4.0});
        for scaling in [llama, yarn] {
            let mut json = tiny().to_json(1, 0);
            json["rope_parameters"] = Value::Null;
            json["rope_scaling"] = scaling;
            let config = Config::from_json(&json).unwrap();
            assert!(config.rope_scaling.is_some());
            assert_eq!(Config::from_json(&config.to_json(1, 0)).unwrap(), config);
        }
        let mut json = tiny().to_json(1, 0);
        for (theta, told) in [(5e5, "500000.0"), (1e308, "1e+308")] {
            json["rope_theta"] = json!(theta);
            let error = Config::from_json(&json).unwrap_err().to_string();
            let told = format!("rope_theta says {told}, rope_parameters says 10000.0");
            assert!(error.contains(&told), "{error}");
        }
    }

    #[test]
    fn a_theta_that_is_not_stated_is_that_of_transformers() {
        for scaling in [Value::Null, json!({"rope_type": "yarn", "factor": 4.0})] {
            let mut json = tiny().to_json(1, 0);
            let keys = json.as_object_mut().unwrap();
            keys.remove("rope_theta");
            keys.insert("rope_parameters".into(), scaling);
            assert_eq!(Config::from_json(&json).unwrap().rope_theta, 10_000.0);
        }
    }

    /// hidden, intermediate, layers, heads, kv heads, vocabulary, tied; parameters in billions as
    /// the model cards round them.
    type Size = (i64, i64, i64, i64, i64, i64, bool, f64);

    #[test]
    fn every_size_of_qwen2_5_has_the_parameters_of_its_card() {
        let sizes: [(&str, Size); 7] = [
            ("0.5B", (896, 4864, 24, 14, 2, 151_936, true, 0.49)),
            ("1.5B", (1536, 8960, 28, 12, 2, 151_936, true, 1.54)),
            ("3B", (2048, 11_008, 36, 16, 2, 151_936, true, 3.09)),
            ("7B", (3584, 18_944, 28, 28, 4, 152_064, false, 7.61)),
            ("14B", (5120, 13_824, 48, 40, 8, 152_064, false, 14.7)),
            ("32B", (5120, 27_648, 64, 40, 8, 152_064, false, 32.5)),
            ("72B", (8192, 29_568, 80, 64, 8, 152_064, false, 72.7)),
        ];
        for (name, (hidden, inner, layers, heads, kv_heads, vocabulary, tied, billions)) in sizes {
            let json = json!({
                "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
                "bos_token_id": 151_643, "eos_token_id": 151_643, "hidden_act": "silu",
                "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": inner,
                "max_position_embeddings": 32_768, "max_window_layers": layers,
                "model_type": "qwen2", "num_attention_heads": heads,
                "num_hidden_layers": layers, "num_key_value_heads": kv_heads,
                "rms_norm_eps": 1e-6, "rope_theta": 1e6, "sliding_window": 32_768,
                "tie_word_embeddings": tied, "torch_dtype": "bfloat16",
                "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
                "use_sliding_window": false, "vocab_size": vocabulary,
            });
            let config = Config::from_json(&json).unwrap();
            let ours = config.parameters() as f64 / 1e9;
            assert!((ours / billions - 1.0).abs() < 0.01, "{name}: {ours} billion parameters");
            assert_eq!(config.head_dim, if name == "0.5B" { 64 } else { 128 });
        }
    }
}
