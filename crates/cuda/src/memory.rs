//! Memory on the card, and memory of the host that the card can reach.
//!
//! A [`Buffer`] owns memory, a [`Slice`] borrows part of it. Kernels write through slices: all of them run in one stream,
//! in order, so there is nothing for Rust's exclusive references to protect on the card. A recorded graph keeps the
//! allocations it uses alive.

use crate::device::{Device, check};
use crate::error::Error;
use crate::pack;
use cudarc::driver::sys;
use kernels::{Format, Shape};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Types that may be copied to and from the card as bytes.
///
/// # Safety
///
/// Every pattern of bytes is a valid value, and there is no padding.
pub unsafe trait Plain: Copy {}
// SAFETY: plain numbers.
unsafe impl Plain for u8 {}
// SAFETY: plain numbers.
unsafe impl Plain for u16 {}
// SAFETY: plain numbers.
unsafe impl Plain for u32 {}
// SAFETY: plain numbers.
unsafe impl Plain for u64 {}
// SAFETY: plain numbers.
unsafe impl Plain for f32 {}
// SAFETY: an array of plain numbers.
unsafe impl Plain for [f32; 2] {}
// SAFETY: four numbers without padding.
unsafe impl Plain for [u32; 4] {}

/// What a recorded graph keeps alive.
pub(crate) trait Keep: Send + Sync {}
impl Keep for Allocation {}
impl Keep for Pinned<u64> {}

/// A piece of the card's memory, freed when the last user is gone.
pub(crate) struct Allocation {
    device: Device,
    address: sys::CUdeviceptr,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.device.inner.bind().is_ok() {
            // SAFETY: nobody holds the address any more; the driver waits for kernels in flight. A failure at this
            // point has nobody left to be told to.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Memory on the card for `len` values.
pub struct Buffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    kind: PhantomData<T>,
}

/// A borrowed part of a [`Buffer`].
pub struct Slice<'a, T> {
    pub(crate) allocation: &'a Arc<Allocation>,
    pub(crate) address: u64,
    /// Number of values.
    pub len: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slice<'_, T> {}

impl<T> Slice<'_, T> {
    /// The first so many of the values.
    pub fn first(self, len: usize) -> Self {
        assert!(len <= self.len, "{len} of {} values", self.len);
        Slice { len, ..self }
    }
}

impl<T: Plain> Slice<'_, T> {
    /// Some of the values.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} values", self.len);
        let address = self.address + (range.start * size_of::<T>()) as u64;
        Slice { address, len: range.len(), ..self }
    }
}

impl<T: Plain> Buffer<T> {
    /// Memory filled with zeros.
    pub fn zeroed(device: &Device, len: usize) -> Result<Buffer<T>, Error> {
        device.inner.bind()?;
        let bytes = (len * size_of::<T>()).max(16);
        let mut address = 0;
        // SAFETY: the pointer is to a live address.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = device.free_bytes().unwrap_or(0) >> 20;
                return Err(Error::OutOfMemory { wanted: bytes.div_ceil(1 << 20), free });
            }
            result => check("cuMemAlloc", result)?,
        }
        let allocation = Arc::new(Allocation { device: device.clone(), address });
        // SAFETY: the allocation has that many bytes.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8Async(address, 0, bytes, device.inner.stream) })?;
        Ok(Buffer { allocation, len, kind: PhantomData })
    }

    /// Memory with a copy of `values`.
    pub fn new(device: &Device, values: &[T]) -> Result<Buffer<T>, Error> {
        let buffer = Buffer::zeroed(device, values.len())?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it.
    pub fn all(&self) -> Slice<'_, T> {
        self.part(0..self.len)
    }

    /// A part of it. Panics when it is not inside.
    pub fn part(&self, range: Range<usize>) -> Slice<'_, T> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} values", self.len);
        let address = self.allocation.address + (range.start * size_of::<T>()) as u64;
        Slice { allocation: &self.allocation, address, len: range.len(), kind: PhantomData }
    }

    /// Copies `values` to place `at`, and returns when `values` may be changed again.
    pub fn write(&self, at: usize, values: &[T]) -> Result<(), Error> {
        let (to, device) = (self.part(at..at + values.len()), &self.allocation.device);
        device.inner.bind()?;
        let bytes = size_of_val(values);
        // SAFETY: both sides have that many bytes, and the copy has ended before `values` can go away.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.address, values.as_ptr().cast::<c_void>(), bytes, device.inner.stream)
        };
        check("cuMemcpyHtoD", result)?;
        device.synchronize()
    }

    /// Copies the values at `at..at + out.len()` to the host once all work before is done.
    pub fn read(&self, at: usize, out: &mut [T]) -> Result<(), Error> {
        let (from, device) = (self.part(at..at + out.len()), &self.allocation.device);
        device.inner.bind()?;
        let bytes = size_of_val(out);
        // SAFETY: both sides have that many bytes, any bytes are values of T, and the copy has ended on return.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast::<c_void>(), from.address, bytes, device.inner.stream)
        };
        check("cuMemcpyDtoH", result)?;
        device.synchronize()
    }

    /// Copies `len` values from place `from` to place `to`, in stream order. The two must not overlap.
    pub fn copy_within(&self, from: usize, to: usize, len: usize) -> Result<(), Error> {
        let (source, target) = (self.part(from..from + len), self.part(to..to + len));
        let device = &self.allocation.device;
        device.inner.bind()?;
        // SAFETY: both parts are inside the allocation.
        let result = unsafe {
            sys::cuMemcpyDtoDAsync_v2(target.address, source.address, len * size_of::<T>(), device.inner.stream)
        };
        check("cuMemcpyDtoD", result)
    }
}

/// Host memory the card copies from and to without a detour. It is what [`Buffer::write`] is too slow for.
pub struct Pinned<T> {
    device: Device,
    values: *mut T,
    len: usize,
}

// SAFETY: owned memory, like a boxed slice.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: shared references only send from the memory or watch it; values are handed out for exclusive ones only.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// Zeros.
    pub fn zeroed(device: &Device, len: usize) -> Result<Pinned<T>, Error> {
        device.inner.bind()?;
        let mut values = std::ptr::null_mut();
        let bytes = (len * size_of::<T>()).max(16);
        // SAFETY: the pointer is to a live pointer; flag 3 is portable and mapped.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut values, bytes, 3) })?;
        // SAFETY: the memory has that many bytes.
        unsafe { std::ptr::write_bytes(values.cast::<u8>(), 0, bytes) };
        Ok(Pinned { device: device.clone(), values: values.cast(), len })
    }

    /// The values. They must not be changed while a copy from them is in flight: callers wait for the step first.
    pub fn values(&mut self) -> &mut [T] {
        // SAFETY: owned memory of that length, initialised with zeros.
        unsafe { std::slice::from_raw_parts_mut(self.values, self.len) }
    }

    /// Copies `range` to place `at` of a buffer, in stream order, without waiting.
    pub fn send(&self, range: Range<usize>, to: &Buffer<T>, at: usize) -> Result<(), Error> {
        assert!(range.start <= range.end && range.end <= self.len, "a part of the pinned memory");
        let target = to.part(at..at + range.len());
        self.device.inner.bind()?;
        // SAFETY: both sides have that many bytes; pinned memory lives until the stream is idle (see Drop).
        let result = unsafe {
            let from = self.values.add(range.start).cast::<c_void>();
            sys::cuMemcpyHtoDAsync_v2(target.address, from, range.len() * size_of::<T>(), self.device.inner.stream)
        };
        check("cuMemcpyHtoD", result)
    }

    /// Copies the start of a buffer here and waits for it.
    pub fn receive(&mut self, from: Slice<'_, T>) -> Result<&[T], Error> {
        assert!(from.len <= self.len, "room in the pinned memory");
        self.device.inner.bind()?;
        // SAFETY: both sides have that many bytes.
        let result = unsafe {
            let (to, bytes) = (self.values.cast::<c_void>(), from.len * size_of::<T>());
            sys::cuMemcpyDtoHAsync_v2(to, from.address, bytes, self.device.inner.stream)
        };
        check("cuMemcpyDtoH", result)?;
        self.device.synchronize()?;
        Ok(&self.values()[..from.len])
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.device.synchronize().is_ok() {
            // SAFETY: the stream is idle, so no copy uses the memory any more.
            let _ = unsafe { sys::cuMemFreeHost(self.values.cast()) };
        }
    }
}

/// Words of host memory that kernels write and the host watches.
pub struct Mailbox(pub(crate) Arc<Pinned<u64>>);

impl Mailbox {
    /// `len` words, all zero.
    pub fn new(device: &Device, len: usize) -> Result<Mailbox, Error> {
        Ok(Mailbox(Arc::new(Pinned::zeroed(device, len)?)))
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.values as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Waits until word `at` satisfies `arrived`, looking at the card's state now and then.
    pub fn wait(&self, at: usize, arrived: impl Fn(u64) -> bool) -> Result<u64, Error> {
        /// Looks between two questions to the driver: about a millisecond.
        const LOOKS: u32 = 20_000;
        assert!(at < self.0.len, "a word of the mailbox");
        let look = || {
            // SAFETY: the word is inside the memory; the card may write it at any time, hence volatile.
            let word = unsafe { self.0.values.add(at).read_volatile() };
            arrived(word).then_some(word)
        };
        loop {
            for _ in 0..LOOKS {
                if let Some(word) = look() {
                    return Ok(word);
                }
                std::hint::spin_loop();
            }
            // An idle stream has written everything it ever will.
            if self.0.device.is_idle()? {
                let text = "the card ended the step without an answer".to_owned();
                return look().ok_or(Error::Driver { call: "pick", text });
            }
        }
    }
}

/// A packed weight matrix on the card.
pub struct Matrix {
    pub(crate) bytes: Buffer<u8>,
    /// Storage format.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
}

impl Matrix {
    /// Room for a matrix, to be filled by [`Matrix::write_tiles`].
    pub fn zeroed(device: &Device, shape: Shape) -> Result<Matrix, Error> {
        let Shape { format, columns, .. } = shape;
        if !pack::is_supported(format) {
            return Err(Error::Unsupported(format!("a matrix in {}", format.name())));
        }
        if pack::is_float(format) && !columns.is_multiple_of(8) {
            return Err(Error::Unsupported(format!("a matrix in {} with {columns} columns", format.name())));
        }
        let bytes = Buffer::zeroed(device, pack::packed_bytes(shape))?;
        Ok(Matrix { bytes, format: shape.format, rows: shape.rows, columns: shape.columns })
    }

    /// A matrix from rows as they stand in a file.
    pub fn new(device: &Device, shape: Shape, rows: &[u8]) -> Result<Matrix, Error> {
        let matrix = Matrix::zeroed(device, shape)?;
        let mut packed = vec![0; matrix.bytes.len()];
        pack::pack(shape.format, shape.columns, rows, &mut packed);
        matrix.bytes.write(0, &packed)?;
        Ok(matrix)
    }

    /// Writes packed tiles, the first of them being tile `tile`.
    pub fn write_tiles(&self, tile: usize, packed: &[u8]) -> Result<(), Error> {
        self.bytes.write(tile * pack::tile_bytes(self.format, self.columns), packed)
    }

    /// Bytes on the card.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
