//! From file to memory: every matrix is read once, packed for the kernels and placed in one region of huge pages.
//!
//! Reading and packing run on all cores, a few MiB at a time, so loading is bound by the disk or, when the file is in
//! the page cache, by copying. Files are read, not mapped: a file that shrinks gives an error and not a signal, and the
//! cached pages do not count as this process's memory.

use crate::config::{Config, ConfigError, LayerKind};
use crate::gguf::{Gguf, GgufError, TensorInfo};
use crate::weights::{Layer, Mixer, Weights};
use kernels::{Format, Layout, Matrix, Region, Shape, TILE, blocks::dequantize_row};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

mod parts;

use parts::Part;

/// Why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The header is not usable.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model is not one of ours.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tensor is missing.
    #[error("tensor `{0}` is missing; the file is incomplete or of an architecture variant Flint does not know")]
    Missing(String),
    /// A tensor has another shape than the metadata says.
    #[error("tensor `{name}` has shape {found:?}, the metadata asks for {expected:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Shape in the file.
        found: Vec<u64>,
        /// Shape that was expected.
        expected: Vec<u64>,
    },
    /// What a device cannot run yet.
    #[error("{0}; run it on the CPU with `--device cpu`")]
    NotOnCard(&'static str),
    /// The card cannot take the model.
    #[error(transparent)]
    Card(#[from] ::cuda::Error),
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Source bytes that are read and packed in one go.
const PIECE_BYTES: usize = 4 << 20;

/// Reads the tensors of one file.
pub struct Loader<'a> {
    path: &'a Path,
    gguf: &'a Gguf,
    layout: Layout,
    threads: usize,
}

/// A matrix to be loaded: where its rows start in the file, and their shape.
pub(crate) struct Wanted {
    pub source: u64,
    pub shape: Shape,
    /// What its results are multiplied with.
    pub scale: f32,
}

/// A run of whole tiles of one matrix, to be read from `source` and packed into `out`.
struct Piece<'a> {
    source: u64,
    shape: Shape,
    rows: usize,
    out: &'a mut [u8],
}

/// Loads all weights of a file, packed in `layout`, on `threads` threads.
pub fn load(path: &Path, gguf: &Gguf, config: &Config, layout: Layout, threads: usize) -> Result<Weights, LoadError> {
    let loader = Loader::new(path, gguf, layout, threads);
    let output = if gguf.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
    let output = loader.wanted(output, config.vocab, config.embedding)?;
    Ok(Weights {
        layers: (0..config.layers).map(|i| loader.layer(config, i)).collect::<Result<_, _>>()?,
        output_norm: loader.vector("output_norm.weight", config.embedding)?,
        output: loader.group(&[output])?.remove(0),
        rope_factors: loader.optional_vector("rope_freqs.weight", config.rope.dimensions / 2)?,
    })
}

impl<'a> Loader<'a> {
    /// Reads from a file whose header was read.
    pub(crate) fn new(path: &'a Path, gguf: &'a Gguf, layout: Layout, threads: usize) -> Loader<'a> {
        Loader { path, gguf, layout, threads }
    }
}

impl Loader<'_> {
    fn layer(&self, config: &Config, i: usize) -> Result<Layer, LoadError> {
        let part = Part { loader: self, config, block: i };
        let delta = config.delta_net.filter(|_| config.kinds[i] == LayerKind::DeltaNet);
        let mut wanted = match delta {
            Some(delta) => part.delta_net_wanted(delta)?,
            None => part.attention_wanted()?,
        };
        wanted.extend(part.feed_forward_wanted()?);
        // All of a layer stands together, in the order it is read.
        let mut matrices = self.group(&wanted)?.into_iter();
        let mut next = || matrices.next().expect("a group returns what was wanted, in order");
        let after = if config.delta_net.is_some() { "post_attention_norm.weight" } else { "ffn_norm.weight" };
        Ok(Layer {
            norm: part.vector("attn_norm.weight", config.embedding)?,
            mixer: match delta {
                Some(delta) => Mixer::DeltaNet(part.delta_net(delta, &mut next)?),
                None => Mixer::Attention(part.attention(&mut next)?),
            },
            feed_forward_norm: part.vector(after, config.embedding)?,
            feed_forward: part.feed_forward(&mut next)?,
        })
    }

    /// A tensor of exactly these dimensions.
    fn tensor(&self, name: &str, expected: &[usize]) -> Result<&TensorInfo, LoadError> {
        let tensor = self.gguf.tensor(name).ok_or_else(|| LoadError::Missing(name.to_string()))?;
        let expected: Vec<u64> = expected.iter().map(|&n| n as u64).collect();
        // Trailing dimensions of one may be spelled out.
        let found: Vec<u64> = tensor.dims.iter().copied().chain(std::iter::repeat(1)).take(4).collect();
        let wanted: Vec<u64> = expected.iter().copied().chain(std::iter::repeat(1)).take(4).collect();
        if found != wanted {
            return Err(LoadError::Shape { name: name.to_string(), found: tensor.dims.clone(), expected });
        }
        Ok(tensor)
    }

    pub(crate) fn wanted(&self, name: &str, rows: usize, columns: usize) -> Result<Wanted, LoadError> {
        let tensor = self.tensor(name, &[columns, rows])?;
        let scale = self.scales(name, 1)?[0];
        Ok(Wanted { source: tensor.offset, shape: Shape { format: tensor.kind, rows, columns }, scale })
    }

    /// What the results of a tensor's `count` matrices are multiplied with; some files of four-bit floats have that.
    fn scales(&self, name: &str, count: usize) -> Result<Vec<f32>, LoadError> {
        let scales = name.strip_suffix(".weight").map(|stem| format!("{stem}.scale"));
        match scales.filter(|name| self.gguf.tensor(name).is_some()) {
            Some(name) => self.vector(&name, count),
            None => Ok(vec![1.0; count]),
        }
    }

    /// The matrices of a tensor that holds one for each expert.
    pub(crate) fn stacked(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<Wanted>, LoadError> {
        let tensor = self.tensor(name, &[columns, rows, count])?;
        let shape = Shape { format: tensor.kind, rows, columns };
        let bytes = (rows * shape.format.row_bytes(columns)) as u64;
        let scales = self.scales(name, count)?.into_iter().enumerate();
        Ok(scales.map(|(i, scale)| Wanted { source: tensor.offset + i as u64 * bytes, shape, scale }).collect())
    }

    /// Loads matrices into one region, in the order given.
    pub(crate) fn group(&self, wanted: &[Wanted]) -> Result<Vec<Matrix>, LoadError> {
        let mut region = Region::new(wanted.iter().map(|w| w.shape.packed_bytes(self.layout)).sum());
        let mut pieces = Vec::new();
        let mut rest = region.as_mut_slice();
        let mut offsets = Vec::new();
        let mut offset = 0;
        for w in wanted {
            let bytes = w.shape.packed_bytes(self.layout);
            let (own, after) = rest.split_at_mut(bytes);
            rest = after;
            self.cut(w, own, &mut pieces);
            offsets.push(offset);
            offset += bytes;
        }
        self.read_and_pack(pieces)?;
        let region = Arc::new(region);
        let matrix =
            |(w, offset): (&Wanted, usize)| Matrix::new(region.clone(), offset, w.shape, self.layout).scaled(w.scale);
        Ok(wanted.iter().zip(offsets).map(matrix).collect())
    }

    /// Cuts a matrix into runs of whole tiles.
    fn cut<'b>(&self, w: &Wanted, mut out: &'b mut [u8], pieces: &mut Vec<Piece<'b>>) {
        let row_bytes = w.shape.format.row_bytes(w.shape.columns);
        let rows_at_once = (PIECE_BYTES / row_bytes).next_multiple_of(TILE).max(TILE);
        for first in (0..w.shape.rows).step_by(rows_at_once) {
            let rows = rows_at_once.min(w.shape.rows - first);
            let bytes = match first + rows == w.shape.rows {
                true => out.len(),
                false => Shape { rows, ..w.shape }.packed_bytes(self.layout),
            };
            let (own, after) = out.split_at_mut(bytes);
            out = after;
            pieces.push(Piece { source: w.source + (first * row_bytes) as u64, shape: w.shape, rows, out: own });
        }
    }

    fn read_and_pack(&self, pieces: Vec<Piece<'_>>) -> Result<(), LoadError> {
        let queue = Mutex::new(pieces);
        let work = || -> Result<(), LoadError> {
            let (mut file, mut buffer) = (None, Vec::new());
            loop {
                let piece = queue.lock().expect("no thread panics while it holds the queue").pop();
                let Some(piece) = piece else { return Ok(()) };
                buffer.resize(piece.rows * piece.shape.format.row_bytes(piece.shape.columns), 0);
                self.read_at(&mut file, piece.source, &mut buffer)?;
                piece.shape.pack(self.layout, &buffer, piece.out);
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..self.threads.max(1)).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = threads.into_iter().map(|t| t.join().expect("packing does not panic"));
            others.fold(own, |all, one| all.and(one))
        })
    }

    pub(crate) fn read_at(&self, file: &mut Option<File>, at: u64, buffer: &mut [u8]) -> Result<(), LoadError> {
        let mut read = || {
            let file = match file {
                Some(file) => file,
                None => file.insert(File::open(self.path)?),
            };
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(buffer)
        };
        read().map_err(|source| LoadError::Read { path: self.path.to_path_buf(), source })
    }

    pub(crate) fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.tensor(name, &[length])?;
        let mut bytes = vec![0; tensor.kind.row_bytes(length)];
        self.read_at(&mut None, tensor.offset, &mut bytes)?;
        let mut values = vec![0.0; length];
        dequantize_row(tensor.kind, &bytes, &mut values);
        Ok(values)
    }

    /// A whole table as floats.
    pub(crate) fn table(&self, name: &str, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.tensor(name, &[columns, rows])?;
        self.rows(tensor, rows, columns)
    }

    /// The first row of a table with any number of them.
    pub(crate) fn first_row(&self, name: &str, columns: usize) -> Result<Vec<f32>, LoadError> {
        let missing = || LoadError::Missing(name.to_string());
        let rows = self.gguf.tensor(name).ok_or_else(missing)?.dims.get(1).copied().unwrap_or(1);
        let tensor = self.tensor(name, &[columns, rows as usize])?;
        self.rows(tensor, rows.min(1) as usize, columns)
    }

    fn rows(&self, tensor: &TensorInfo, rows: usize, columns: usize) -> Result<Vec<f32>, LoadError> {
        let row_bytes = tensor.kind.row_bytes(columns);
        let mut bytes = vec![0; rows * row_bytes];
        self.read_at(&mut None, tensor.offset, &mut bytes)?;
        let mut values = vec![0.0; rows * columns];
        for (bytes, values) in bytes.chunks_exact(row_bytes).zip(values.chunks_exact_mut(columns)) {
            dequantize_row(tensor.kind, bytes, values);
        }
        Ok(values)
    }

    pub(crate) fn optional_vector(&self, name: &str, length: usize) -> Result<Option<Vec<f32>>, LoadError> {
        self.gguf.tensor(name).map(|_| self.vector(name, length)).transpose()
    }
}

/// The embedding table, left in the file: a step needs a handful of its rows.
pub struct Embeddings {
    file: File,
    path: PathBuf,
    offset: u64,
    format: Format,
    columns: usize,
    buffer: Vec<u8>,
}

impl Embeddings {
    /// Opens the table of a file.
    pub fn open(path: &Path, gguf: &Gguf, config: &Config) -> Result<Embeddings, LoadError> {
        let loader = Loader::new(path, gguf, Layout::Rows, 1);
        let table = loader.wanted("token_embd.weight", config.vocab, config.embedding)?;
        let file = File::open(path).map_err(|source| LoadError::Read { path: path.to_path_buf(), source })?;
        let Shape { format, columns, .. } = table.shape;
        let buffer = vec![0; format.row_bytes(columns)];
        Ok(Embeddings { file, path: path.to_path_buf(), offset: table.source, format, columns, buffer })
    }

    /// Writes the embedding of a token.
    pub fn row(&mut self, token: u32, out: &mut [f32]) -> Result<(), LoadError> {
        assert_eq!(out.len(), self.columns, "one row of the table");
        let at = self.offset + u64::from(token) * self.buffer.len() as u64;
        let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(&mut self.buffer));
        read.map_err(|source| LoadError::Read { path: self.path.clone(), source })?;
        dequantize_row(self.format, &self.buffer, out);
        Ok(())
    }
}
