//! Model files for tests: a small GGUF writer, so that most tests need none, and the way to real ones.
//!
//! The writer writes what it is told, also what a reader must refuse: names may repeat and data may have any length.

use half::f16;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use model::gguf::{ALIGNMENT_DEFAULT, Array, Format, Gguf, StringArray, Value};

/// Collects metadata and tensors and lays them out as a file.
///
/// The reader refuses files whose header would take more memory than the whole file has bytes, so a file with metadata
/// needs some tensor data too: a kilobyte or two is enough.
///
/// ```
/// use model::gguf::{Gguf, Format, Value};
/// let bytes = testkit::gguf::GgufWriter::new()
///     .meta("general.architecture", Value::String("llama".into()))
///     .tensor("output.weight", &[256, 8], Format::Q8_0, vec![0; 2176])
///     .bytes();
/// let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
/// assert_eq!(gguf.tensor("output.weight").unwrap().bytes, 2176);
/// ```
#[derive(Debug, Clone)]
pub struct GgufWriter {
    version: u32,
    alignment: u64,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    dims: Vec<u64>,
    kind: Format,
    data: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        GgufWriter { version: 3, alignment: ALIGNMENT_DEFAULT, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl GgufWriter {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the version number.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the alignment of tensor data and writes it to the metadata.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = u64::from(alignment);
        self.meta("general.alignment", Value::U32(alignment))
    }

    /// Adds a metadata entry.
    pub fn meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.metadata.push((key.into(), value));
        self
    }

    /// Sets a metadata entry that may be there already.
    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.metadata.retain(|(other, _)| other != key);
        self.meta(key, value)
    }

    /// Adds a string entry.
    pub fn text(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta(key, Value::String(value.into()))
    }

    /// Adds an array of strings.
    pub fn strings<T: AsRef<[u8]>>(self, key: impl Into<String>, values: impl IntoIterator<Item = T>) -> Self {
        self.meta(key, Value::Array(Array::String(StringArray::from_iter(values))))
    }

    /// Adds a tensor; `dims[0]` is the contiguous dimension.
    pub fn tensor(mut self, name: impl Into<String>, dims: &[u64], kind: Format, data: Vec<u8>) -> Self {
        self.tensors.push(Tensor { name: name.into(), dims: dims.to_vec(), kind, data });
        self
    }

    /// Takes a tensor out again.
    pub fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// Gives a tensor other dimensions, its data as it was.
    pub fn reshaped(mut self, name: &str, dims: &[u64]) -> Self {
        self.tensors.iter_mut().filter(|tensor| tensor.name == name).for_each(|tensor| tensor.dims = dims.to_vec());
        self
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out).expect("memory takes everything");
        out
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = io::BufWriter::new(std::fs::File::create(path)?);
        self.write_to(&mut file)?;
        file.flush()
    }

    fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        let mut out = Vec::new();
        out.extend_from_slice(b"GGUF");
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key.as_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut out, tensor.name.as_bytes());
            out.extend_from_slice(&(tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend_from_slice(&tensor.kind.file_id().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            offset += (tensor.data.len() as u64).next_multiple_of(self.alignment);
        }
        to.write_all(&out)?;
        let mut written = out.len();
        for tensor in &self.tensors {
            let gap = written.next_multiple_of(self.alignment as usize) - written;
            to.write_all(&vec![0; gap])?;
            to.write_all(&tensor.data)?;
            written += gap + tensor.data.len();
        }
        Ok(())
    }
}

/// Writes a model again with every matrix as floats, `F16` or `F32`; what is no matrix stays in 32 bits.
pub fn write_as(path: &Path, to: &Path, format: Format) -> io::Result<()> {
    let gguf = Gguf::open(path).map_err(io::Error::other)?;
    let mut file = std::fs::File::open(path)?;
    let mut writer = gguf.metadata.iter().fold(GgufWriter::new(), |w, (key, value)| w.meta(key, value.clone()));
    for tensor in &gguf.tensors {
        let (columns, mut bytes) = (tensor.columns() as usize, vec![0; tensor.bytes as usize]);
        file.seek(SeekFrom::Start(tensor.offset))?;
        file.read_exact(&mut bytes)?;
        let kind = if tensor.dims.len() > 1 { format } else { Format::F32 };
        let (mut row, mut data) = (vec![0.0; columns], Vec::new());
        for packed in bytes.chunks_exact(tensor.kind.row_bytes(columns)) {
            kernels::blocks::dequantize_row(tensor.kind, packed, &mut row);
            match kind {
                Format::F16 => data.extend(row.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes())),
                Format::F32 => data.extend(row.iter().flat_map(|x| x.to_le_bytes())),
                other => return Err(io::Error::other(format!("no matrix is written as {}", other.name()))),
            }
        }
        writer = writer.tensor(&tensor.name, &tensor.dims, kind, data);
    }
    writer.write(to)
}

/// The file of a real model, when it has been fetched into the store: `FLINT_HOME`, else the user's data directory.
/// Says on standard output why a test that needs it is skipped.
pub fn real_model(name: &str) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let data = || variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let home = variable("FLINT_HOME").or_else(|| Some(data()?.join("flint")))?;
    let path = home.join("models").join(format!("{name}.gguf"));
    if path.is_file() {
        return Some(path);
    }
    crate::skip::skipped(&format!("{} is missing; fetch it with `flint models pull {name}`", path.display()));
    None
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(&value.id().to_le_bytes());
    match value {
        Value::U8(n) => out.extend(n.to_le_bytes()),
        Value::I8(n) => out.extend(n.to_le_bytes()),
        Value::U16(n) => out.extend(n.to_le_bytes()),
        Value::I16(n) => out.extend(n.to_le_bytes()),
        Value::U32(n) => out.extend(n.to_le_bytes()),
        Value::I32(n) => out.extend(n.to_le_bytes()),
        Value::F32(n) => out.extend(n.to_le_bytes()),
        Value::Bool(flag) => out.push(u8::from(*flag)),
        Value::String(text) => put_string(out, text.as_bytes()),
        Value::Array(array) => put_array(out, array),
        Value::U64(n) => out.extend(n.to_le_bytes()),
        Value::I64(n) => out.extend(n.to_le_bytes()),
        Value::F64(n) => out.extend(n.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend_from_slice(&array.id().to_le_bytes());
    out.extend_from_slice(&(array.len() as u64).to_le_bytes());
    match array {
        Array::U8(items) => out.extend_from_slice(items),
        Array::I8(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::U16(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::I16(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::U32(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::I32(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::F32(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::Bool(items) => out.extend(items.iter().map(|&flag| u8::from(flag))),
        Array::String(items) => items.iter().for_each(|text| put_string(out, text)),
        Array::U64(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::I64(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        Array::F64(items) => out.extend(items.iter().flat_map(|n| n.to_le_bytes())),
    }
}
