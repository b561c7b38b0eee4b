//! The number formats a weight can be stored in: their names, block sizes and file ids.
//!
//! Everything that differs between formats without touching arithmetic lives here, so that adding one starts with a
//! line in each of these tables.

/// How the elements of a tensor are stored. Names and ids are those of GGUF files.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit float.
    F32,
    /// 16-bit IEEE float.
    F16,
    /// 16-bit brain float.
    BF16,
    /// 4 bits, one scale per 32.
    Q4_0,
    /// 4 bits, scale and minimum per 32.
    Q4_1,
    /// 5 bits, one scale per 32.
    Q5_0,
    /// 5 bits, scale and minimum per 32.
    Q5_1,
    /// 8 bits, one scale per 32.
    Q8_0,
    /// 2 bits, 4-bit scale and minimum per 16, super-block of 256.
    Q2_K,
    /// 3 bits, 6-bit scale per 16, super-block of 256.
    Q3_K,
    /// 4 bits, 6-bit scale and minimum per 32, super-block of 256.
    Q4_K,
    /// 5 bits, 6-bit scale and minimum per 32, super-block of 256.
    Q5_K,
    /// 6 bits, 8-bit scale per 16, super-block of 256.
    Q6_K,
    /// 4 bits that name one of 16 values, one scale per 32.
    IQ4_NL,
    /// 4 bits that name one of 16 values, 6-bit scale per 32, super-block of 256.
    IQ4_XS,
    /// Floats of 4 bits, a power of two per 32 (OCP microscaling).
    MXFP4,
}

/// What the 16 quants of IQ4_NL and IQ4_XS stand for, plus [`TABLE_OFFSET`]: unsigned, as the dot product wants them.
pub const IQ4_VALUES: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];
/// The same for MXFP4, plus [`MXFP4_OFFSET`]: twice the value, whose least step is a half.
pub const MXFP4_VALUES: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];
/// What is subtracted from [`IQ4_VALUES`].
pub const TABLE_OFFSET: u8 = 128;
/// What is subtracted from [`MXFP4_VALUES`].
pub const MXFP4_OFFSET: u8 = 16;

/// Elements in a super-block of the K formats.
pub const SUPER: usize = 256;
/// Elements in a block of the older formats.
pub const SMALL: usize = 32;

/// How the activations that meet a weight are quantised. It follows from the weight's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Kept as 32-bit floats.
    Float,
    /// 8 bits with one scale per 32 elements.
    Small,
    /// 8 bits with one scale per 256 elements.
    Super,
}

impl Format {
    /// Every format, in file-id order.
    pub const ALL: [Format; 16] = [
        Format::F32,
        Format::F16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::IQ4_NL,
        Format::IQ4_XS,
        Format::BF16,
        Format::MXFP4,
    ];

    /// The id GGUF files use.
    pub fn file_id(self) -> u32 {
        match self {
            Format::F32 => 0,
            Format::F16 => 1,
            Format::Q4_0 => 2,
            Format::Q4_1 => 3,
            Format::Q5_0 => 6,
            Format::Q5_1 => 7,
            Format::Q8_0 => 8,
            Format::Q2_K => 10,
            Format::Q3_K => 11,
            Format::Q4_K => 12,
            Format::Q5_K => 13,
            Format::Q6_K => 14,
            Format::IQ4_NL => 20,
            Format::IQ4_XS => 23,
            Format::BF16 => 30,
            Format::MXFP4 => 39,
        }
    }

    /// The format with this GGUF id, if Flint can run it.
    pub fn from_file_id(id: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.file_id() == id)
    }

    /// The name people know.
    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::BF16 => "BF16",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q8_0 => "Q8_0",
            Format::Q2_K => "Q2_K",
            Format::Q3_K => "Q3_K",
            Format::Q4_K => "Q4_K",
            Format::Q5_K => "Q5_K",
            Format::Q6_K => "Q6_K",
            Format::IQ4_NL => "IQ4_NL",
            Format::IQ4_XS => "IQ4_XS",
            Format::MXFP4 => "MXFP4",
        }
    }

    /// Elements in one block: a row's length is always a multiple of it.
    pub fn block_elements(self) -> usize {
        match self.precision() {
            Precision::Float => 1,
            Precision::Small => SMALL,
            Precision::Super => SUPER,
        }
    }

    /// Bytes of one block in a file.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Q2_K => 84,
            Format::Q3_K => 110,
            Format::Q4_K => 144,
            Format::Q5_K => 176,
            Format::Q6_K => 210,
            Format::IQ4_NL => 18,
            Format::IQ4_XS => 136,
            Format::MXFP4 => 17,
        }
    }

    /// How activations must be prepared to meet weights of this format.
    pub fn precision(self) -> Precision {
        match self {
            Format::F32 | Format::F16 | Format::BF16 => Precision::Float,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => Precision::Small,
            Format::IQ4_NL | Format::MXFP4 => Precision::Small,
            Format::Q2_K | Format::Q3_K | Format::Q4_K | Format::Q5_K | Format::Q6_K => Precision::Super,
            Format::IQ4_XS => Precision::Super,
        }
    }

    /// Bytes of a row of `columns` elements in a file.
    pub fn row_bytes(self, columns: usize) -> usize {
        columns / self.block_elements() * self.block_bytes()
    }
}
