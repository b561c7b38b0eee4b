//! How tokens are picked: the settings that several protocols share, under the names they share.

use std::collections::BTreeMap;

use crate::fields::{FieldError, Fields};

/// Settings of the sampler. What is absent is up to the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingFields {
    /// Sampling temperature.
    pub temperature: Option<f32>,
    /// Nucleus sampling.
    pub top_p: Option<f32>,
    /// Top-k sampling.
    pub top_k: Option<usize>,
    /// Tokens less likely than this share of the likeliest are left out.
    pub min_p: Option<f32>,
    /// Seed of the sampler.
    pub seed: Option<u64>,
    /// Penalty on tokens said before.
    pub presence_penalty: Option<f32>,
    /// Penalty on tokens by how often they were said.
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
}

impl SamplingFields {
    /// Takes the settings out of a request.
    pub fn read(fields: &mut Fields) -> Result<Self, FieldError> {
        let narrow = |number: Option<f64>| number.map(|number| number as f32);
        Ok(Self {
            temperature: narrow(fields.take_within("temperature", 0.0..=2.0)?),
            top_p: narrow(fields.take_within("top_p", 0.0..=1.0)?).map(|number| number.max(f32::MIN_POSITIVE)),
            // llama.cpp's clients write -1 for "all".
            top_k: fields.take::<i64>("top_k")?.map(|count| usize::try_from(count).unwrap_or(0)),
            min_p: narrow(fields.take_within("min_p", 0.0..=1.0)?),
            seed: fields.take::<i64>("seed")?.map(|seed| seed as u64),
            presence_penalty: narrow(fields.take_within("presence_penalty", -2.0..=2.0)?),
            frequency_penalty: narrow(fields.take_within("frequency_penalty", -2.0..=2.0)?),
            logit_bias: read_bias(fields)?,
        })
    }
}

fn read_bias(fields: &mut Fields) -> Result<Vec<(u32, f32)>, FieldError> {
    let path = fields.path("logit_bias");
    let bias: BTreeMap<String, f64> = fields.take("logit_bias")?.unwrap_or_default();
    let entry = |(token, bias): (String, f64)| {
        let id = token.parse().map_err(|_| FieldError::new(&path, format!("{token:?} is not a token id")))?;
        match (-100.0..=100.0).contains(&bias) {
            true => Ok((id, bias as f32)),
            false => Err(FieldError::new(&path, format!("must be from -100 to 100, not {bias}"))),
        }
    };
    bias.into_iter().map(entry).collect()
}

/// Takes `stop`: a text or a list of at most `max` of them.
pub fn read_stop(fields: &mut Fields, field: &str, max: usize) -> Result<Vec<String>, FieldError> {
    let stop = match fields.take_value(field) {
        None => return Ok(Vec::new()),
        Some(serde_json::Value::String(text)) => vec![text],
        Some(value) => serde_json::from_value(value)
            .map_err(|_| FieldError::new(fields.path(field), "must be a string or an array of strings"))?,
    };
    if stop.len() > max {
        return Err(FieldError::new(fields.path(field), format!("{} texts, at most {max} are taken", stop.len())));
    }
    if stop.iter().any(String::is_empty) {
        return Err(FieldError::new(fields.path(field), "must not hold an empty text"));
    }
    Ok(stop)
}

/// The wish for usage at the end of a stream, from `stream_options`.
pub fn read_include_usage(fields: &mut Fields) -> Result<bool, FieldError> {
    let path = fields.path("stream_options");
    match fields.take_value("stream_options") {
        None => Ok(false),
        Some(options) => Ok(Fields::at(path, options)?.take("include_usage")?.unwrap_or(false)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fields(body: Value) -> Fields {
        Fields::new(body).unwrap()
    }

    #[test]
    fn settings_are_read_and_checked() {
        let read = |body| SamplingFields::read(&mut fields(body));
        let body = json!({"temperature": 0.5, "top_k": -1, "seed": -1, "logit_bias": {"7": -100, "12": 1.5}});
        let sampling = read(body).unwrap();
        assert_eq!((sampling.temperature, sampling.top_k, sampling.seed), (Some(0.5), Some(0), Some(u64::MAX)));
        assert_eq!(sampling.logit_bias, [(12, 1.5), (7, -100.0)]);
        for (body, param) in [
            (json!({"temperature": 2.1}), "temperature"),
            (json!({"logit_bias": {"x": 1}}), "logit_bias"),
            (json!({"logit_bias": {"1": 101}}), "logit_bias"),
            (json!({"presence_penalty": -3}), "presence_penalty"),
        ] {
            assert_eq!(read(body).unwrap_err().param, param);
        }
    }

    #[test]
    fn stops_are_one_text_or_some() {
        let read = |stop: Value| read_stop(&mut fields(json!({"stop": stop})), "stop", 2);
        assert_eq!(read(json!("a")).unwrap(), ["a"]);
        assert_eq!(read(json!(["a", "b"])).unwrap(), ["a", "b"]);
        assert_eq!(read(json!(null)).unwrap(), [""; 0]);
        for bad in [json!(["a", "b", "c"]), json!([""]), json!([1]), json!({})] {
            assert_eq!(read(bad).unwrap_err().param, "stop");
        }
    }
}
