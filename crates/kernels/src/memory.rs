//! Memory for weights and KV: aligned, zeroed, and in huge pages where the system gives them.
//!
//! Weights are streamed once per token; with 4 KiB pages the address translation alone halves the speed that was
//! measured with 2 MiB pages (13-21 against 32 GB/s on one core). Pages appear when first touched, so a large reserve
//! costs nothing until used.

use std::ptr::NonNull;

const HUGE_PAGE: usize = 2 << 20;

/// A zeroed, page-aligned region that never moves.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    mapped: usize,
}

// SAFETY: the region is plain memory owned by this value; sharing follows the usual borrow rules of its slices.
unsafe impl Send for Region {}
// SAFETY: as above, `&Region` only gives out shared slices.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` of zeroed memory. Panics when the system has no address space left.
    #[cfg(target_os = "linux")]
    pub fn new(bytes: usize) -> Region {
        // Reserving one extra page lets the start be moved to a huge-page boundary.
        let mapped = bytes.max(1).next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        // SAFETY: an anonymous private mapping with no address hint touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(base != libc::MAP_FAILED, "no address space for {bytes} bytes");
        let aligned = (base as usize).next_multiple_of(HUGE_PAGE);
        let lead = aligned - base as usize;
        // SAFETY: both trimmed ranges are whole pages of the mapping just made and nobody holds pointers into them.
        unsafe {
            if lead > 0 {
                libc::munmap(base, lead);
            }
            if lead < HUGE_PAGE {
                libc::munmap((base as *mut u8).add(lead + mapped - HUGE_PAGE).cast(), HUGE_PAGE - lead);
            }
        }
        let mapped = mapped - HUGE_PAGE;
        // SAFETY: advice on our own mapping; failure only costs speed.
        unsafe { libc::madvise(aligned as *mut libc::c_void, mapped, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(aligned as *mut u8).expect("mmap never returns null");
        Region { start, bytes, mapped }
    }

    /// Reserves `bytes` of zeroed memory.
    #[cfg(not(target_os = "linux"))]
    pub fn new(bytes: usize) -> Region {
        let layout = std::alloc::Layout::from_size_align(bytes.max(1), HUGE_PAGE).expect("size fits in memory");
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Region { start, bytes, mapped: bytes }
    }

    /// The content.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` points to `bytes` initialised (zeroed) bytes that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The content, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Address of the first byte, for kernels that hand disjoint parts to several threads.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: exactly the range that `new` left mapped, and no borrow can outlive `self`.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.mapped);
        }
        #[cfg(not(target_os = "linux"))]
        // SAFETY: allocated in `new` with this very layout.
        unsafe {
            let layout = std::alloc::Layout::from_size_align_unchecked(self.bytes.max(1), HUGE_PAGE);
            std::alloc::dealloc(self.start.as_ptr(), layout);
        }
    }
}

/// Numbers for which all bits zero is the number zero.
///
/// # Safety
///
/// Any bytes are a valid value, zero bytes are the value zero, and the alignment is at most 64.
pub unsafe trait Number: Copy {}
// SAFETY: plain numbers.
unsafe impl Number for f32 {}
// SAFETY: plain numbers.
unsafe impl Number for i32 {}
// SAFETY: plain numbers.
unsafe impl Number for i16 {}
// SAFETY: plain numbers.
unsafe impl Number for i8 {}

/// A fixed number of zeroed numbers in huge pages: a step walks over rows that are tens of KiB apart, and with small
/// pages nearly every row would cost an address translation.
pub struct Buffer<T> {
    region: Region,
    length: usize,
    number: std::marker::PhantomData<T>,
}

impl<T: Number> Buffer<T> {
    /// `length` zeros.
    pub fn new(length: usize) -> Buffer<T> {
        Buffer { region: Region::new(length * size_of::<T>()), length, number: std::marker::PhantomData }
    }
}

impl<T: Number> Default for Buffer<T> {
    fn default() -> Buffer<T> {
        Buffer::new(0)
    }
}

impl<T: Number> std::ops::Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the region is aligned to pages, has room for `length` numbers, and any bytes are numbers.
        unsafe { std::slice::from_raw_parts(self.region.pointer().cast(), self.length) }
    }
}

impl<T: Number> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.region.pointer().cast(), self.length) }
    }
}
