//! One card: its context, its one stream, and what it says of itself.
//!
//! All work of a model goes through one stream, so launches and copies happen in the order they were asked for and no
//! other ordering is needed. A [`Device`] may be used from any thread, one at a time.

use crate::arguments::Arguments;
use crate::error::Error;
use crate::memory::Keep;
use cudarc::driver::sys;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a card says of itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory one block may have, in bytes.
    pub shared_bytes: usize,
    /// Memory in bytes.
    pub memory_bytes: usize,
    /// Version of the driver's interface, as 13000 for 13.0.
    pub driver: u32,
}

/// A card that is ready for work. Clones are the same card.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    context: sys::CUcontext,
    pub(crate) stream: sys::CUstream,
    pub(crate) facts: Facts,
    /// While a graph is recorded: every allocation its kernels use.
    pub(crate) recording: Mutex<Option<Vec<Arc<dyn Keep>>>>,
}

// SAFETY: contexts and streams are handles that the driver lets any thread use; every call binds the context first.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver serialises calls on one stream.
unsafe impl Sync for Inner {}

impl Device {
    /// Cards the driver sees. An error says what is missing.
    pub fn count() -> Result<usize, Error> {
        start_driver()?;
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a live integer.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        if count == 0 { Err(Error::NoCard) } else { Ok(count as usize) }
    }

    /// Opens card `number`.
    pub fn open(number: usize) -> Result<Device, Error> {
        let found = Device::count()?;
        if number >= found {
            return Err(Error::NoSuchCard { wanted: number, found });
        }
        let (mut card, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the pointer is to a live handle and the number was checked.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut card, number as c_int) })?;
        let facts = facts(card)?;
        let (major, minor) = facts.capability;
        if major < 8 {
            return Err(Error::TooOld { name: facts.name, major, minor });
        }
        // SAFETY: the pointer is to a live handle, the card exists.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, card) })?;
        let mut inner = Inner { context, stream: std::ptr::null_mut(), facts, recording: Mutex::new(None) };
        inner.bind()?;
        // SAFETY: a context is current; flag 1 is a stream that does not wait for the default one.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut inner.stream, 1) })?;
        Ok(Device { inner: Arc::new(inner) })
    }

    /// What the card says of itself.
    pub fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    /// Bytes free on the card now.
    pub fn free_bytes(&self) -> Result<usize, Error> {
        self.inner.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: pointers to live integers, a context is current.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free)
    }

    /// Waits until everything asked for has been done.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.inner.bind()?;
        // SAFETY: the stream lives as long as the device.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.inner.stream) })
    }

    /// Whether everything asked for has been done; an error when some of it failed.
    pub fn is_idle(&self) -> Result<bool, Error> {
        self.inner.bind()?;
        // SAFETY: the stream lives as long as the device.
        match unsafe { sys::cuStreamQuery(self.inner.stream) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuStreamQuery", result).map(|()| true),
        }
    }

    /// Launches a kernel. `params` is the kernel's one parameter.
    pub(crate) fn launch<P>(&self, call: Call<'_>, arguments: Arguments, params: &P) -> Result<(), Error> {
        self.inner.bind()?;
        let mut attributes: [sys::CUlaunchAttribute; 2] = {
            // SAFETY: attributes are plain data for which zeros are valid.
            unsafe { std::mem::zeroed() }
        };
        let [first, second] = &mut attributes;
        // Cards before 9.0 know neither dependent launches nor clusters.
        let is_new = self.inner.facts.capability.0 >= 9;
        first.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        first.value.programmaticStreamSerializationAllowed = 1;
        let count = match call.start {
            Start::Early if is_new => 1,
            Start::Clusters(blocks) if is_new => {
                second.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
                second.value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
                2
            }
            _ => 0,
        };
        let (x, y, z) = call.grid;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: call.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: call.shared_bytes as u32,
            hStream: self.inner.stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: count,
        };
        let mut pointers = [std::ptr::from_ref(params).cast_mut().cast::<c_void>()];
        if let Some(held) = self.recording().as_mut() {
            held.extend(arguments.held);
        }
        // SAFETY: the function belongs to a module of this context and takes one parameter of P's layout, which its
        // wrapper vouches for; every address in it comes from `Arguments`, whose slices are alive and large enough as
        // the wrapper checked. The driver copies the parameter before it returns.
        let result =
            unsafe { sys::cuLaunchKernelEx(&config, call.function.raw, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        check(call.function.name, result)
    }

    pub(crate) fn recording(&self) -> std::sync::MutexGuard<'_, Option<Vec<Arc<dyn Keep>>>> {
        self.inner.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a kernel is launched.
pub(crate) struct Call<'a> {
    pub function: &'a Function,
    pub grid: (u32, u32, u32),
    pub threads: u32,
    pub shared_bytes: usize,
    pub start: Start,
}

/// When the blocks of a kernel start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// When the kernel before has ended.
    Plain,
    /// Perhaps before the kernel before has ended; it waits by itself.
    Early,
    /// The same, and so many blocks along the first dimension of the grid reach each other's shared memory.
    Clusters(u32),
}

/// A kernel of a loaded module. Modules stay loaded until the process ends: there are a handful.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub raw: sys::CUfunction,
    /// For messages.
    pub name: &'static str,
}
// SAFETY: a handle that any thread may use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Inner {
    /// Makes the card's context the calling thread's.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        // SAFETY: the context was retained and lives until the device is dropped.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.bind().is_ok() && !self.stream.is_null() {
            // SAFETY: nothing else holds the stream any more. A failure here has nobody left to be told to.
            unsafe {
                let _ = sys::cuStreamSynchronize(self.stream);
                let _ = sys::cuStreamDestroy_v2(self.stream);
            }
        }
    }
}

/// Opens the driver once.
fn start_driver() -> Result<(), Error> {
    static STARTED: OnceLock<bool> = OnceLock::new();
    // SAFETY: opening libraries runs their initialisers, which the driver's are made for; `cuInit` takes no pointer.
    let started = STARTED.get_or_init(|| unsafe { sys::is_culib_present() });
    if !*started {
        return Err(Error::NoDriver);
    }
    // SAFETY: the library is present; initialising it again does nothing.
    match unsafe { sys::cuInit(0) } {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoCard),
        result => check("cuInit", result),
    }
}

fn facts(card: sys::CUdevice) -> Result<Facts, Error> {
    let attribute = |which| {
        let mut value: c_int = 0;
        // SAFETY: the pointer is to a live integer and the card exists.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, card) })?;
        Ok::<u32, Error>(value as u32)
    };
    let (mut name, mut memory_bytes, mut driver) = ([0; 256], 0, 0);
    // SAFETY: the buffer has the length that is given, and ends with a zero when the call succeeds.
    let name = unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 255, card))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    // SAFETY: pointers to live integers.
    check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, card) })?;
    // SAFETY: as above.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut driver) })?;
    use sys::CUdevice_attribute as A;
    Ok(Facts {
        name,
        capability: (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        memory_bytes,
        driver: driver as u32,
    })
}

/// Turns the driver's answer into a result.
pub(crate) fn check(call: &'static str, result: sys::CUresult) -> Result<(), Error> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver sets the pointer to a string of its own, or leaves it null.
    let text = unsafe {
        let _ = sys::cuGetErrorString(result, &mut text);
        if text.is_null() { format!("{result:?}") } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    Err(Error::Driver { call, text })
}
