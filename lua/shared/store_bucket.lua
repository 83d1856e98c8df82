-- Writes the state of a bucket. The key expires in the second after the bucket is full; within the same second the
-- expiry stays as it is.
whole = floor((now + whole) / 1000000)
if whole == till then
  call('SET', key, state, 'KEEPTTL')
else
  call('SET', key, state, EXPIRY, (whole + 1) * 1000 - epoch)
end
